package main

import (
	"strings"
	"testing"

	"stoa.dev/function-runner/renderer/rendererpb"
)

const valuesMap = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: values\n  annotations:\n    stoa.dev/values: \"true\"\n    config.kubernetes.io/local-config: \"true\"\ndata:\n  replicas: \"1\"\n  region: local\n"

// A base with its values, which replacements spread.
const spread = "-- base/kustomization.yaml --\nresources: [values.yaml, web.yaml]\nreplacements:\n" +
	"- source: {kind: ConfigMap, name: values, fieldPath: data.replicas}\n  targets: [{select: {kind: Deployment}, fieldPaths: [spec.replicas]}]\n" +
	"- source: {kind: ConfigMap, name: values, fieldPath: data.region}\n  targets: [{select: {kind: Deployment}, fieldPaths: [metadata.labels.region], options: {create: true}}]\n" +
	"-- base/web.yaml --\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 1}\n" +
	"-- base/values.yaml --\n" + valuesMap +
	"-- dev/kustomization.yaml --\nresources: [../base]\n"

func TestConfigMapSpreadsValuesOfThePlatform(t *testing.T) {
	tree := repository(t, spread)
	for _, test := range []struct {
		given              []*rendererpb.Parameter
		replicas, inRegion string
	}{
		{nil, "1", "local"},
		{[]*rendererpb.Parameter{{Name: "replicas", Value: "3"}, {Name: "other", Value: "x: [y"}}, "3", "local"},
		{[]*rendererpb.Parameter{{Name: "region", Value: "eu"}}, "1", "eu"},
	} {
		request := input{tree: tree, path: "dev"}.kustomize()
		request.GetKustomize().Values = test.given
		response := render(t, request)
		if len(response.Problems) > 0 || len(response.Documents) != 1 || !response.TakesValues {
			t.Fatal(response)
		}
		found := string(response.Documents[0].Yaml)
		if !strings.Contains(found, `"replicas":`+test.replicas) || !strings.Contains(found, `"region":"`+test.inRegion+`"`) {
			t.Errorf("%v: found %s", test.given, found)
		}
	}
}

func TestConfigMapWithValuesIsNotDeployed(t *testing.T) {
	kustomization := "-- s/kustomization.yaml --\nresources: [a.yaml]\n-- s/a.yaml --\n"
	for _, test := range []struct{ files, expected string }{
		{
			kustomization + strings.ReplaceAll(valuesMap, "    config.kubernetes.io/local-config: \"true\"\n", ""),
			`s/a.yaml:6: a ConfigMap with the annotation stoa.dev/values is not deployed; add the annotation config.kubernetes.io/local-config: "true"`,
		},
		{kustomization + strings.ReplaceAll(valuesMap, "stoa.dev/values: \"true\"", "stoa.dev/values: \"false\""), ""},
		{kustomization + strings.ReplaceAll(valuesMap, "kind: ConfigMap", "kind: Widget"), ""},
	} {
		request := input{tree: repository(t, test.files), path: "s"}.kustomize()
		request.GetKustomize().Values = []*rendererpb.Parameter{{Name: "replicas", Value: "3"}}
		response := render(t, request)
		if found := sentences(response); found != test.expected || response.TakesValues {
			t.Errorf("found %q, expected %q", found, test.expected)
		}
	}
}

func TestParameterSetsOneValueOnly(t *testing.T) {
	tree := repository(t, chartOf+"-- c/templates/a.yaml --\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  all: {{ .Values | toJson | quote }}\n")
	for value, expected := range map[string]string{
		"{a,b}":        `{"p":["a","b"]}`,
		`{a\},b}`:      `{"p":["a}","b"]}`,
		"{}":           `{"p":[""]}`,
		"{a},final=x}": `{"p":"{a},final=x}"}`,
		"{a}{b}":       `{"p":"{a}{b}"}`,
		"{a":           `{"p":"{a"}`,
		`{a\}`:         `{"p":"{a\\}"}`,
		"a,final=x":    `{"p":"a,final=x"}`,
		`a\,b`:         `{"p":"a\\,b"}`,
	} {
		response := render(t, input{tree: tree, path: "c", namespace: "default", parameters: [][2]string{{"p", value}}}.helm())
		if len(response.Documents) != 1 {
			t.Fatal(value, response)
		}
		quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(expected)
		if found := string(response.Documents[0].Yaml); !strings.Contains(found, `all: "`+quoted+`"`) {
			t.Errorf("%s: found %s, expected %s", value, found, quoted)
		}
	}
}

func TestRefusalOfASchemaNamesTheStrongestOrigin(t *testing.T) {
	tree := repository(t, chartOf+"-- c/values.schema.json --\n"+
		`{"properties": {"a/b": {"type": "integer"}, "image": {"properties": {"tag": {"type": "string"}}}, "list": {"items": {"type": "integer"}}}}`+
		"\n-- c/values.yaml --\nimage:\n  tag: x\nlist: []\na/b: 1\n-- c/dev.yaml --\nimage:\n  tag: 1\n")
	platform := []*rendererpb.Value{
		{Name: "image", Json: `{"tag": 2}`, Origin: "VariableSet eu"}, {Name: "a/b", Json: `"x"`, Origin: "Workspace dev"},
	}
	for _, test := range []struct {
		files      []string
		parameters [][2]string
		platform   []*rendererpb.Value
		expected   string
	}{
		{[]string{"dev.yaml"}, [][2]string{{"image.tag", "17"}}, nil, `c: parameter "image.tag": `},
		{nil, [][2]string{{"list", "{1,b}"}}, nil, `c: parameter "list": `},
		{nil, [][2]string{{"list[0]", "b"}}, nil, `c: parameter "list[0]": `},
		{[]string{"dev.yaml"}, [][2]string{{"image.tags", "17"}}, platform[:1], "c/dev.yaml:2: "},
		{nil, nil, platform[:1], `c: value "image" of VariableSet eu: `},
		{nil, nil, platform[1:], `c: value "a/b" of Workspace dev: `},
	} {
		request := input{tree: tree, path: "c", namespace: "default", values: test.files, parameters: test.parameters}.helm()
		request.GetHelm().Values = test.platform
		if found := sentences(render(t, request)); !strings.HasPrefix(found, test.expected) {
			t.Errorf("%v %v: found %q, expected %q", test.files, test.parameters, found, test.expected)
		}
	}
}

func TestRefusalOfASchemaNamesFileAndLine(t *testing.T) {
	tree := repository(t, chartOf+"-- c/values.schema.json --\n"+
		`{"type": "object", "properties": {"image": {"type": "object", "properties": {"tag": {"type": "string"}}, "required": ["name"]}, "list": {"items": {"type": "string"}}}}`+
		"\n-- c/values.yaml --\nlist: []\nimage:\n  name: web\n  tag: x\n-- values/dev.yaml --\n# for dev\nimage:\n  tag: 1\n-- values/list.yaml --\nlist:\n- a\n- 2\n-- values/null.yaml --\na: 1\nimage: {name: null}\n")
	for _, test := range []struct {
		files    []string
		expected string
	}{
		{[]string{"../values/dev.yaml"}, "values/dev.yaml:3: "},
		{[]string{"../values/dev.yaml", "../values/null.yaml"}, "values/null.yaml:2: "},
		{[]string{"../values/list.yaml"}, "values/list.yaml:3: "},
		{[]string{"../values/null.yaml"}, "values/null.yaml:2: "},
	} {
		found := sentences(render(t, input{tree: tree, path: "c", namespace: "default", values: test.files}.helm()))
		if !strings.HasPrefix(found, test.expected) {
			t.Errorf("%v: found %q, expected %q", test.files, found, test.expected)
		}
	}
}
