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
)

// kind is one of Stoa's kinds, with what an object has to say of itself. It is one whose objects are as their clients left them: a
// controller that writes a status later would get in the way of updates.
type kind struct {
	group, plural, name string
	spec                map[string]any
}

var kinds = []kind{
	{"platform.stoa.dev", "workspaces", "Workspace", map[string]any{"backend": map[string]any{"name": "none"}}},
}

var customResourceDefinitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// define makes a custom resource and waits until it is served at path.
func (b *bed) define(ctx context.Context, definition *unstructured.Unstructured, path string) error {
	definitions := b.dynamic.Resource(customResourceDefinitions)
	if _, err := definitions.Create(ctx, definition, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	client, err := b.client("admin", false)
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
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
	if err := json.Unmarshal([]byte(strings.ReplaceAll(string(text), stoaDomain, referenceDomain)), &list); err != nil {
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
		group := strings.ReplaceAll(k.group, stoaDomain, referenceDomain)
		for _, item := range list.Items {
			definition := &unstructured.Unstructured{Object: item}
			if definition.GetName() != k.plural+"."+group {
				continue
			}
			// Who asks for these by a short name or by the category means Stoa's.
			unstructured.RemoveNestedField(item, "spec", "names", "shortNames")
			unstructured.RemoveNestedField(item, "spec", "names", "categories")
			defined = append(defined, definition.GetName())
			if err := b.define(ctx, definition, "/apis/"+group+"/v1alpha1/"+k.plural); err != nil {
				return remove, err
			}
		}
	}
	if len(defined) != len(kinds) {
		return remove, fmt.Errorf("%s defines %v alone", file, defined)
	}
	return remove, nil
}

// collection is the conversation of a check about a kind; the objects that it makes have a label in common.
type collection struct {
	*session
	kind kind
}

// apiVersion is that of the server that is asked.
func (c *collection) apiVersion() string {
	group := c.kind.group
	if !c.subject {
		group = strings.ReplaceAll(group, stoaDomain, referenceDomain)
	}
	return group + "/v1alpha1"
}

func (c *collection) all() string              { return "/apis/" + c.apiVersion() + "/" + c.kind.plural }
func (c *collection) one(suffix string) string { return c.all() + "/" + c.name(suffix) }
func (c *collection) own(query string) string {
	return c.all() + "?labelSelector=check%3D" + c.name("all") + query
}
func (c *collection) labels() map[string]any     { return map[string]any{"check": c.name("all")} }
func (c *collection) make(suffix string) *answer { return c.setup("POST", c.all(), c.object(suffix)) }

// object is one of the kind.
func (c *collection) object(suffix string, more ...any) map[string]any {
	return with(map[string]any{
		"apiVersion": c.apiVersion(), "kind": c.kind.name, "metadata": map[string]any{"name": c.name(suffix), "labels": c.labels()}, "spec": c.kind.spec,
	}, more...)
}
