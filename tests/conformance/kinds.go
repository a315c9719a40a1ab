package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Stoa's own kinds, as stoa-apiserver has them. Their reference is a custom resource of the same schema in kube-apiserver, which is
// in another group there, as the group itself leads to Stoa.

const (
	stoaDomain      = ".stoa.dev"
	referenceDomain = ".reference.example.com"
	// The same for the kinds with Porch's names.
	porchDomain          = ".porch.kpt.dev"
	porchReferenceDomain = ".porch.example.com"
)

// toReference turns the groups of Stoa in a text into those of the references.
var toReference = strings.NewReplacer(stoaDomain, referenceDomain, porchDomain, porchReferenceDomain)

var customResourceDefinitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// define makes a custom resource and waits until it is served at path.
func (b *bed) define(ctx context.Context, definition *unstructured.Unstructured, path string) error {
	if err := b.create(ctx, definition); err != nil {
		return err
	}
	return b.await(path)
}

func (b *bed) create(ctx context.Context, definition *unstructured.Unstructured) error {
	definitions := b.dynamic.Resource(customResourceDefinitions)
	_, err := definitions.Create(ctx, definition, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// await waits until kube-apiserver serves a path.
func (b *bed) await(path string) error {
	client, err := b.client("admin", false)
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		answer, err := client.Get(b.apiserver + path)
		if err != nil {
			return err
		}
		answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			return nil
		}
	}
	return fmt.Errorf("kube-apiserver does not serve %s after a minute", path)
}

// defineKinds makes the references of the kinds, from the definitions in the file. The function that it returns removes them.
func (b *bed) defineKinds(file string) (remove func() error, err error) {
	if b.stoa == "" {
		return nil, fmt.Errorf("the test bed has no Stoa; hack/cluster up --stoa starts it")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var list struct{ Items []map[string]any }
	if err := json.Unmarshal([]byte(toReference.Replace(string(text))), &list); err != nil {
		return nil, err
	}
	ctx := context.Background()
	var defined []string
	remove = func() error {
		for _, name := range defined {
			if err := b.dynamic.Resource(customResourceDefinitions).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
				return err
			}
		}
		return nil
	}
	for _, k := range kinds {
		group := toReference.Replace(k.group)
		for _, item := range list.Items {
			definition := &unstructured.Unstructured{Object: item}
			if definition.GetName() != k.plural+"."+group {
				continue
			}
			// Who asks for these by a short name or by the category means Stoa's.
			unstructured.RemoveNestedField(item, "spec", "names", "shortNames")
			unstructured.RemoveNestedField(item, "spec", "names", "categories")
			k.complete(item)
			defined = append(defined, definition.GetName())
			if err := b.create(ctx, definition); err != nil {
				return remove, err
			}
		}
	}
	if len(defined) != len(kinds) {
		return remove, fmt.Errorf("%s defines %v alone", file, defined)
	}
	for _, k := range kinds {
		if err := b.await("/apis/" + toReference.Replace(k.group) + "/v1alpha1/" + k.plural); err != nil {
			return remove, err
		}
	}
	return remove, nil
}

// complete adds to the definition of a custom resource what Stoa has in its own way: columns and fields that selectors may name.
func (k *kind) complete(definition map[string]any) {
	version := definition["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)
	var columns, fields []any
	for _, c := range k.columns {
		columns = append(columns, map[string]any{"name": c.name, "type": c.kind, "jsonPath": c.path, "priority": c.priority})
	}
	for _, field := range k.selectable {
		fields = append(fields, map[string]any{"jsonPath": "." + field})
	}
	if columns != nil {
		version["additionalPrinterColumns"] = columns
	}
	if fields != nil {
		version["selectableFields"] = fields
	}
}
