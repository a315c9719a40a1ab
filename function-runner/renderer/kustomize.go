package main

import (
	"errors"
	"path"
	"runtime/debug"
	"strings"
	"sync"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/openapi"

	"stoa.dev/function-runner/renderer/rendererpb"
)

// The names by which Kustomize finds a kustomization.
var kustomizations = []string{"kustomization.yaml", "kustomization.yml", "Kustomization"}

// kustomizeVersion is that of the library.
var kustomizeVersion = sync.OnceValue(func() string { return "kustomize " + version("sigs.k8s.io/kustomize/api") })

// version is that of a module in this program.
func version(module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range info.Deps {
			if dependency.Path == module {
				return dependency.Version
			}
		}
	}
	return "unknown"
}

// hasSchema is whether the last build changed the global schema, which later builds would merge by.
var hasSchema bool

// kustomize builds a kustomization.
func kustomize(tree *tree, folder string, request *rendererpb.Kustomize, out *rendering) error {
	values := newGivenValues(request.GetValues())
	tree.change = values.change
	references := newReferences(tree)
	references.follow(clean(folder))
	if len(references.problems) > 0 {
		out.problems = references.problems
		return nil
	}
	if hasSchema {
		openapi.ResetOpenAPI()
	}
	hasSchema = references.hasSchema
	options := krusty.MakeDefaultOptions()
	// As the command does: by kind, unless the kustomization says otherwise.
	options.Reorder = krusty.ReorderOptionUnspecified
	objects, err := krusty.MakeKustomizer(options).Run(tree, path.Join(mount, folder))
	if err != nil {
		// The library has errors of files as texts only.
		if values.wrong != nil {
			return values.wrong
		}
		var found *wrong
		if errors.As(err, &found) {
			return found
		}
		return &wrong{file: references.root, message: shortened(err.Error())}
	}
	out.takesValues = values.areRead
	out.warnings = append(out.warnings, references.unmatched(objects.Resources())...)
	for _, object := range objects.Resources() {
		// YAML would be made of this, and is slower to write and to read.
		json, err := object.MarshalJSON()
		if err != nil {
			return &wrong{file: references.root, message: object.CurId().String() + ": " + err.Error()}
		}
		if err := out.add(references.root, json); err != nil {
			return err
		}
	}
	return nil
}

func clean(folder string) string {
	return strings.TrimPrefix(path.Clean("/"+folder), "/")
}

// shortened leaves out what Kustomize adds for each level: how it failed to read a base as a file.
func shortened(message string) string {
	const accumulation = "accumulating resources: accumulation err='"
	for {
		before, rest, found := strings.Cut(message, accumulation)
		if !found {
			return message
		}
		// The text in quotes has quotes itself; the other one follows the last.
		_, after, found := strings.Cut(rest, "must resolve to a file': ")
		if !found {
			_, after, found = strings.Cut(rest, "': ")
		}
		if !found {
			return message
		}
		message = before + after
	}
}
