package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"stoa.dev/function-runner/renderer/rendererpb"
)

// The inputs of testdata are archives of a repository. The lines before the first file say what to render:
//
//	path: apps/dev            the folder
//	values: values-dev.yaml   a values file, from the folder
//	set: image.tag=1.2        a parameter
//	namespace: shop           of the release

type input struct {
	name       string
	tree       string
	path       string
	namespace  string
	values     []string
	parameters [][2]string
}

// inputs writes all archives of a folder to trees.
func inputs(t *testing.T, folder string) []input {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", folder, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no inputs in %s: %v", folder, err)
	}
	var all []input
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		in := input{name: strings.TrimSuffix(filepath.Base(file), ".txtar"), namespace: "default", tree: t.TempDir()}
		for line := range strings.Lines(string(archive.Comment)) {
			key, value, found := strings.Cut(strings.TrimSpace(line), ": ")
			if !found {
				continue
			}
			switch key {
			case "path":
				in.path = value
			case "namespace":
				in.namespace = value
			case "values":
				in.values = append(in.values, value)
			case "set":
				name, of, _ := strings.Cut(value, "=")
				in.parameters = append(in.parameters, [2]string{name, of})
			}
		}
		write(t, in.tree, archive)
		all = append(all, in)
	}
	return all
}

func write(t testing.TB, tree string, archive *txtar.Archive) {
	t.Helper()
	for _, file := range archive.Files {
		at := filepath.Join(tree, file.Name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if target, isLink := strings.CutPrefix(string(file.Data), "-> "); isLink {
			if err := os.Symlink(strings.TrimSpace(target), at); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(at, file.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// tool is the command of a tool, built from the modules of this program.
func tool(t testing.TB, name string) string {
	t.Helper()
	output, err := exec.Command("go", "tool", "-n", name).Output()
	if err != nil {
		t.Fatalf("building %s: %v", name, err)
	}
	return strings.TrimSpace(string(output))
}

func run(t testing.TB, program string, arguments ...string) []byte {
	t.Helper()
	command := exec.Command(program, arguments...)
	command.Env = []string{"HOME=" + t.TempDir()}
	var problems bytes.Buffer
	command.Stderr = &problems
	output, err := command.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(arguments, " "), err, problems.String())
	}
	return output
}

func render(t *testing.T, request *rendererpb.RenderRequest) *rendererpb.RenderResponse {
	t.Helper()
	response, err := (&renderer{}).Render(context.Background(), request)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

func (in input) kustomize() *rendererpb.RenderRequest {
	return &rendererpb.RenderRequest{
		Tree: in.tree,
		Path: in.path,
		Tool: &rendererpb.RenderRequest_Kustomize{Kustomize: &rendererpb.Kustomize{}},
	}
}

func (in input) helm() *rendererpb.RenderRequest {
	helm := &rendererpb.Helm{ReleaseName: "shop", Namespace: in.namespace, ValuesFiles: in.values}
	for _, parameter := range in.parameters {
		helm.Parameters = append(helm.Parameters, &rendererpb.Parameter{Name: parameter[0], Value: parameter[1]})
	}
	return &rendererpb.RenderRequest{Tree: in.tree, Path: in.path, Tool: &rendererpb.RenderRequest_Helm{Helm: helm}}
}

func TestKustomizeAgreesWithTheCommand(t *testing.T) {
	command := tool(t, "sigs.k8s.io/kustomize/kustomize/v5")
	for _, in := range inputs(t, "kustomize") {
		t.Run(in.name, func(t *testing.T) {
			expected := string(run(t, command, "build", filepath.Join(in.tree, in.path)))
			response := render(t, in.kustomize())
			for _, problem := range response.Problems {
				t.Errorf("problem: %v", problem)
			}
			var documents []string
			for _, document := range response.Documents {
				text, err := yaml.JSONToYAML(document.Yaml)
				if err != nil {
					t.Fatal(err)
				}
				documents = append(documents, string(text))
			}
			if found := strings.Join(documents, "---\n"); found != expected {
				t.Errorf("found\n%s\nexpected\n%s", found, expected)
			}
		})
	}
}

func TestHelmAgreesWithTheCommand(t *testing.T) {
	command := tool(t, "helm")
	for _, in := range inputs(t, "helm") {
		t.Run(in.name, func(t *testing.T) {
			chart := filepath.Join(in.tree, in.path)
			arguments := []string{"template", "shop", chart, "--include-crds", "--namespace", in.namespace}
			for _, file := range in.values {
				arguments = append(arguments, "--values", filepath.Join(chart, file))
			}
			for _, parameter := range in.parameters {
				arguments = append(arguments, "--set", parameter[0]+"="+parameter[1])
			}
			response := render(t, in.helm())
			for _, problem := range response.Problems {
				t.Errorf("problem: %v", problem)
			}
			found := map[string]int{}
			for _, document := range response.Documents {
				for _, object := range objects(t, document.Yaml) {
					found[object]++
				}
			}
			// Objects of other events are no part of a deployment.
			for _, object := range objects(t, run(t, command, arguments...)) {
				if skips(object) {
					continue
				}
				if found[object]--; found[object] < 0 {
					t.Errorf("missing:\n%s", object)
				}
			}
			for object, count := range found {
				if count > 0 {
					t.Errorf("not expected:\n%s", object)
				}
			}
		})
	}
}

// objects has the objects of a stream, each as canonical YAML.
func objects(t *testing.T, stream []byte) []string {
	t.Helper()
	var all []string
	for _, document := range strings.Split("\n"+string(stream), "\n---") {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if len(object) == 0 {
			continue
		}
		canonical, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(canonical))
	}
	sort.Strings(all)
	return all
}

func skips(object string) bool {
	for _, event := range []string{"test", "test-success"} {
		if strings.Contains(object, "helm.sh/hook: "+event+"\n") {
			return true
		}
	}
	return false
}
