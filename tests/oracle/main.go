// Command oracle says what Kubernetes' own libraries make of a write: who owns which field afterwards, and what a
// server-side apply or a strategic merge patch makes of an object.
//
// It reads requests from its standard input and answers each on its standard output, one JSON document a line. A
// request either defines a kind, or asks about one that was defined before, or asks what kubectl reads in a file.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// request is one line of the input.
type request struct {
	// Define names the kind that the request defines.
	Define string `json:"define"`
	// Schemas are the components of its OpenAPI v3 document.
	Schemas map[string]*spec.Schema `json:"schemas"`
	// Component is the kind's own among them.
	Component string                  `json:"component"`
	GVK       schema.GroupVersionKind `json:"gvk"`
	// Empty is an object that nothing was written to.
	Empty       content `json:"empty"`
	Subresource string  `json:"subresource"`
	// Ignored are the paths that writes do not change.
	Ignored [][]string `json:"ignored"`

	// File is the text of a file of manifests.
	File string `json:"file"`

	// Kind names the kind that the question is about.
	Kind string `json:"kind"`
	// Verb is update, apply or strategic.
	Verb    string  `json:"verb"`
	Live    content `json:"live"`
	New     content `json:"new"`
	Manager string  `json:"manager"`
	Force   bool    `json:"force"`
}

// content is an object as API servers decode it: whole numbers stay whole.
type content map[string]any

func (c *content) UnmarshalJSON(data []byte) error {
	return utiljson.Unmarshal(data, (*map[string]any)(c))
}

// response is one line of the output.
type response struct {
	Object map[string]any `json:"object,omitempty"`
	// Documents are the values in a file.
	Documents []json.RawMessage `json:"documents,omitempty"`
	Error     string            `json:"error,omitempty"`
	// Status is there when the error is one that clients see as it is.
	Status *metav1.Status `json:"status,omitempty"`
}

// kind is what was defined.
type kind struct {
	manager *managedfields.FieldManager
	patches strategicpatch.LookupPatchMeta
}

// scheme knows one kind at one version.
type scheme struct {
	gvk   schema.GroupVersionKind
	empty map[string]any
}

func (s scheme) New(schema.GroupVersionKind) (runtime.Object, error) {
	object := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(s.empty)}
	object.SetGroupVersionKind(s.gvk)
	return object, nil
}

func (s scheme) Default(runtime.Object) {}

func (s scheme) Convert(in, out, context any) error { return errors.New("there is nothing to convert") }

func (s scheme) ConvertToVersion(in runtime.Object, version runtime.GroupVersioner) (runtime.Object, error) {
	if _, ok := version.KindForGroupVersionKinds([]schema.GroupVersionKind{s.gvk}); !ok {
		return nil, runtime.NewNotRegisteredErrForTarget("oracle", nil, version)
	}
	return in, nil
}

func (s scheme) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

func define(r request) (*kind, error) {
	converter, err := managedfields.NewTypeConverter(r.Schemas, false)
	if err != nil {
		return nil, err
	}
	ignored := fieldpath.NewSet()
	for _, path := range r.Ignored {
		parts := make([]any, len(path))
		for i := range path {
			parts[i] = path[i]
		}
		ignored.Insert(fieldpath.MakePathOrDie(parts...))
	}
	gv := r.GVK.GroupVersion()
	filter := fieldpath.NewExcludeFilterSetMap(map[fieldpath.APIVersion]*fieldpath.Set{fieldpath.APIVersion(gv.String()): ignored})
	s := scheme{gvk: r.GVK, empty: r.Empty}
	manager, err := managedfields.NewDefaultFieldManager(converter, s, s, s, r.GVK, gv, r.Subresource, filter)
	if err != nil {
		return nil, err
	}
	patches := strategicpatch.PatchMetaFromOpenAPIV3{SchemaList: r.Schemas, Schema: r.Schemas[r.Component]}
	return &kind{manager: manager, patches: patches}, nil
}

func (k *kind) answer(r request) (map[string]any, error) {
	live, changed := &unstructured.Unstructured{Object: r.Live}, &unstructured.Unstructured{Object: r.New}
	var result runtime.Object
	var err error
	switch r.Verb {
	case "update":
		result, err = k.manager.Update(live, changed, r.Manager)
	case "apply":
		result, err = k.manager.Apply(live, changed, r.Manager, r.Force)
	case "strategic":
		return strategicpatch.StrategicMergeMapPatchUsingLookupPatchMeta(runtime.DeepCopyJSON(r.Live), runtime.DeepCopyJSON(r.New), k.patches)
	default:
		err = fmt.Errorf("unknown verb %q", r.Verb)
	}
	if err != nil {
		return nil, err
	}
	return result.(*unstructured.Unstructured).Object, nil
}

func main() {
	kinds := map[string]*kind{}
	in, out := bufio.NewReaderSize(os.Stdin, 1<<20), json.NewEncoder(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		out.Encode(respond(kinds, line))
	}
}

// read answers what kubectl reads in a file, as its visitors of k8s.io/cli-runtime do.
func read(file string) (documents []json.RawMessage, err error) {
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(file), 4096)
	for {
		var document runtime.RawExtension
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return documents, nil
		} else if err != nil {
			return nil, err
		}
		if raw := bytes.TrimSpace(document.Raw); len(raw) > 0 && !bytes.Equal(raw, []byte("null")) {
			documents = append(documents, raw)
		}
	}
}

func respond(kinds map[string]*kind, line []byte) (result response) {
	defer func() {
		if problem := recover(); problem != nil {
			result = response{Error: fmt.Sprintf("panic: %v", problem)}
		}
	}()
	var r request
	if err := json.Unmarshal(line, &r); err != nil {
		return response{Error: err.Error()}
	}
	if r.Define != "" {
		defined, err := define(r)
		if err != nil {
			return response{Error: err.Error()}
		}
		kinds[r.Define] = defined
		return response{}
	}
	if r.File != "" {
		documents, err := read(r.File)
		if err != nil {
			return response{Error: err.Error()}
		}
		return response{Documents: documents}
	}
	defined, ok := kinds[r.Kind]
	if !ok {
		return response{Error: fmt.Sprintf("kind %q was not defined", r.Kind)}
	}
	object, err := defined.answer(r)
	if err == nil {
		return response{Object: object}
	}
	result.Error = err.Error()
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		s := status.Status()
		result.Status = &s
	}
	return result
}
