package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"stoa.dev/function-runner/renderer/rendererpb"
)

// repository writes the files of an archive in txtar's form to a tree.
func repository(t testing.TB, archive string) string {
	t.Helper()
	tree := t.TempDir()
	write(t, tree, txtar.Parse([]byte(archive)))
	return tree
}

// sentences has the problems as people read them.
func sentences(response *rendererpb.RenderResponse) string {
	var all []string
	for _, problem := range response.Problems {
		line := ""
		if problem.Line > 0 {
			line = fmt.Sprintf(":%d", problem.Line)
		}
		all = append(all, problem.File+line+": "+problem.Message)
	}
	return strings.Join(all, "\n")
}

const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"

func TestBadKustomizationNamesFileAndLine(t *testing.T) {
	for _, test := range []struct{ name, files, expected string }{
		{
			"remote file", "-- s/kustomization.yaml --\nresources:\n- a.yaml\n- https://example.org/b.yaml\n-- s/a.yaml --\n" + configMap,
			`s/kustomization.yaml:3: "https://example.org/b.yaml" is remote, and nothing is downloaded while a stack is rendered; commit a copy of it`,
		},
		{
			"remote base", "-- s/kustomization.yaml --\nresources:\n- github.com/example/repo//base?ref=v1\n",
			`s/kustomization.yaml:2: "github.com/example/repo//base?ref=v1" is remote, and nothing is downloaded while a stack is rendered; commit a copy of it`,
		},
		{
			"remote base over SSH with a password", "-- s/kustomization.yaml --\nbases:\n- https://user:secret@example.org/repo.git\n",
			`s/kustomization.yaml:2: "https://example.org/repo.git" is remote, and nothing is downloaded while a stack is rendered; commit a copy of it`,
		},
		{
			"remote file of a generator", "-- s/kustomization.yaml --\nconfigMapGenerator:\n- name: a\n  files:\n  - k=https://example.org/b\n",
			`s/kustomization.yaml:4: "https://example.org/b" is remote, and nothing is downloaded while a stack is rendered; commit a copy of it`,
		},
		{
			"missing base", "-- s/kustomization.yaml --\nresources:\n- ../base\n",
			`s/kustomization.yaml:2: "../base" does not exist`,
		},
		{
			"missing patch of a base", "-- s/kustomization.yaml --\nresources: [../base]\n-- base/kustomization.yaml --\npatches:\n- path: nope.yaml\n",
			`base/kustomization.yaml:2: "nope.yaml" does not exist`,
		},
		{
			"base outside", "-- s/kustomization.yaml --\nresources:\n- ../../other\n",
			`s/kustomization.yaml:2: "../../other" leads out of the repository`,
		},
		{
			"absolute path", "-- s/kustomization.yaml --\nresources:\n- /etc/passwd\n",
			`s/kustomization.yaml:2: "/etc/passwd" is an absolute path; use a path in the repository`,
		},
		{
			"link outside", "-- s/kustomization.yaml --\nresources:\n- a.yaml\n-- s/a.yaml --\n-> ../../../etc/passwd\n",
			`s/kustomization.yaml:2: "a.yaml" is a symbolic link to "../../../etc/passwd", which leads out of the repository`,
		},
		{
			"absolute link", "-- s/kustomization.yaml --\nresources:\n- a.yaml\n-- s/a.yaml --\n-> /etc/passwd\n",
			`s/kustomization.yaml:2: "a.yaml" is a symbolic link to "/etc/passwd", which leads out of the repository`,
		},
		{
			"endless link", "-- s/kustomization.yaml --\nresources:\n- a.yaml\n-- s/a.yaml --\n-> a.yaml\n",
			`s/kustomization.yaml:2: "a.yaml" too many symbolic links`,
		},
		{
			"file beside the folder", "-- s/kustomization.yaml --\nresources: [../a.yaml]\n-- a.yaml --\n" + configMap,
			"security; file 'a.yaml' is not in or below 's'",
		},
		{"cycle", "-- s/kustomization.yaml --\nresources: [../b]\n-- b/kustomization.yaml --\nresources: [../s]\n", "cycle detected"},
		{"unknown field", "-- s/kustomization.yaml --\nresource: [a.yaml]\n-- s/a.yaml --\n" + configMap, `unknown field "resource"`},
		{"syntax", "-- s/kustomization.yaml --\nresources: [a\nb: c\n", "s/kustomization.yaml:"},
		{"two kustomizations", "-- s/kustomization.yaml --\n{}\n-- s/kustomization.yml --\n{}\n", "Found multiple kustomization files"},
		{"nothing", "-- s/a.yaml --\n" + configMap, "s: has no kustomization.yaml"},
		{"duplicate", "-- s/kustomization.yaml --\nresources: [a.yaml, b.yaml]\n-- s/a.yaml --\n" + configMap + "-- s/b.yaml --\n" + configMap, "already registered id"},
		{
			"patch without target", "-- s/kustomization.yaml --\nresources: [a.yaml]\npatches:\n- patch: |\n    apiVersion: v1\n    kind: ConfigMap\n    metadata: {name: other}\n-- s/a.yaml --\n" + configMap,
			"no resource matches strategic merge patch",
		},
		{
			"program", "-- s/kustomization.yaml --\ngenerators: [g.yaml]\n-- s/g.yaml --\napiVersion: v1\nkind: G\nmetadata:\n  name: g\n  annotations:\n    config.kubernetes.io/function: 'exec: {path: ./run.sh}'\n-- s/run.sh --\necho\n",
			"external plugins disabled",
		},
		{
			"container", "-- s/kustomization.yaml --\ntransformers: [g.yaml]\n-- s/g.yaml --\napiVersion: v1\nkind: G\nmetadata:\n  name: g\n  annotations:\n    config.kubernetes.io/function: 'container: {image: example.org/f}'\n",
			"external plugins disabled",
		},
		{
			"helm chart", "-- s/kustomization.yaml --\nhelmCharts:\n- name: web\n  repo: https://example.org\n",
			"s/kustomization.yaml:2: helmCharts is not supported; use a Stack of the chart with generator Helm",
		},
		{"wrong type", "-- s/kustomization.yaml --\nnamePrefix: [a]\n", "cannot unmarshal"},
		{"no name", "-- s/kustomization.yaml --\nresources: [a.yaml]\n-- s/a.yaml --\napiVersion: v1\nkind: ConfigMap\nmetadata: {}\n", "missing metadata.name"},
		{"equal keys", "-- s/kustomization.yaml --\nresources: [a.yaml]\n-- s/a.yaml --\n" + configMap + "data: {a: b, a: c}\n", "already"},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := input{tree: repository(t, test.files), path: "s"}
			response := render(t, in.kustomize())
			if found := sentences(response); !strings.Contains(found, test.expected) {
				t.Errorf("found %q, expected %q", found, test.expected)
			}
			if len(response.Documents) > 0 {
				t.Error("half of it was rendered")
			}
		})
	}
}

const chartOf = "-- c/Chart.yaml --\napiVersion: v2\nname: web\nversion: 1.0.0\n"

func TestBadChartNamesFileAndLine(t *testing.T) {
	schema := "-- c/values.schema.json --\n" + `{"type": "object", "properties": {"replicas": {"type": "integer"}}}` + "\n"
	for _, test := range []struct{ name, files, expected string }{
		{"nothing", "-- c/a.yaml --\n" + configMap, "c: has no Chart.yaml"},
		{"metadata", "-- c/Chart.yaml --\napiVersion: v2\nversion: 1.0.0\n", "c/Chart.yaml: validation: chart.metadata.name is required"},
		{"syntax of the chart", "-- c/Chart.yaml --\napiVersion: v2\nname: [\n", "c/Chart.yaml:"},
		{"library", chartOf + "type: library\n", "c/Chart.yaml: a chart of type library is not deployed; use it as a dependency"},
		{"schema", chartOf + schema + "-- c/values.yaml --\nreplicas: many\n", "'/replicas': got string, want integer"},
		{
			"schema elsewhere", chartOf + "-- c/values.schema.json --\n{\"$ref\": \"https://example.org/schema.json\"}\n",
			`c/values.schema.json: refers to "https://example.org/schema.json"; a schema can only refer to its own definitions`,
		},
		{
			"schema in a file", chartOf + "-- c/values.schema.json --\n{\"$ref\": \"file:///etc/passwd\"}\n",
			`c/values.schema.json: refers to "file:///etc/passwd"`,
		},
		{"template syntax", chartOf + "-- c/templates/a.yaml --\na: b\nc: {{ .Values\n", "c/templates/a.yaml:3: parse error"},
		{"unknown function", chartOf + "-- c/templates/a.yaml --\na: {{ env \"HOME\" }}\n", `c/templates/a.yaml:1: parse error at (web/templates/a.yaml:1): function "env" not defined`},
		{"required", chartOf + "-- c/templates/a.yaml --\na:\n  {{ required \"give x\" .Values.x }}\n", "c/templates/a.yaml:2: "},
		{"fail", chartOf + "-- c/templates/a.yaml --\n{{ fail \"never\" }}\n", "c/templates/a.yaml:1: execution error at (web/templates/a.yaml:1:3): never"},
		{"missing value of a missing map", chartOf + "-- c/templates/a.yaml --\na: {{ .Values.nope.x }}\n", "nil pointer evaluating"},
		{"output that is no YAML", chartOf + "-- c/templates/a.yaml --\na: [\n", "c/templates/a.yaml: YAML parse error"},
		{
			"missing dependency", chartOf + "dependencies:\n- name: db\n  version: 1.x.x\n  repository: https://charts.example.org\n",
			"c/Chart.yaml:5: dependency db 1.x.x is not in charts; nothing is downloaded, so run `helm dependency build` and commit the folder",
		},
		{
			"dependency of another version", chartOf + "dependencies:\n- {name: db, version: 2.x.x, repository: \"\"}\n-- c/charts/db/Chart.yaml --\napiVersion: v2\nname: db\nversion: 1.0.0\n",
			"c/Chart.yaml:5: dependency db has version 1.0.0 in charts, and 2.x.x is wanted",
		},
		{"kubeVersion", chartOf + "kubeVersion: '>=9.0.0'\n", "chart requires kubeVersion: >=9.0.0 which is incompatible with Kubernetes v1.35.0"},
		{"link outside", chartOf + "-- c/templates/a.yaml --\n-> ../../../etc/passwd\n", `c/templates/a.yaml: is a symbolic link to "../../../etc/passwd", which leads out of the repository`},
		{"values that are a list", chartOf + "-- c/values.yaml --\n- a\n", "cannot unmarshal"},
		{"recursion", chartOf + "-- c/templates/_a.tpl --\n{{ define \"a\" }}{{ include \"a\" . }}{{ end }}\n-- c/templates/a.yaml --\n{{ include \"a\" . }}\n", "c/templates/a.yaml:1: template: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := input{tree: repository(t, test.files), path: "c", namespace: "default"}
			response := render(t, in.helm())
			found := sentences(response)
			if !strings.Contains(found, test.expected) {
				t.Errorf("found %q, expected %q", found, test.expected)
			}
			if strings.Contains(found, in.tree) {
				t.Errorf("the problem names a folder of the machine: %q", found)
			}
			if len(response.Documents) > 0 {
				t.Error("half of it was rendered")
			}
		})
	}
}

// The function-runner hides secret values in it, which it knows as a whole alone, and cuts it then.
func TestLongMessageIsWhole(t *testing.T) {
	long := strings.Repeat("x", 5000) + "-end"
	in := input{tree: repository(t, chartOf+"-- c/templates/a.yaml --\n{{ fail \""+long+"\" }}\n"), path: "c", namespace: "default"}
	if found := sentences(render(t, in.helm())); !strings.Contains(found, long) {
		t.Errorf("found %q", found)
	}
}

func TestBadValuesAreRefused(t *testing.T) {
	files := chartOf + "-- c/values.yaml --\nlist: []\nmap: {a: b}\n-- c/templates/a.yaml --\n" + configMap
	for _, test := range []struct {
		name     string
		in       input
		expected string
	}{
		{"missing file", input{values: []string{"nope.yaml"}}, "c/nope.yaml: does not exist"},
		{"file outside", input{values: []string{"../../x.yaml"}}, `c: "../../x.yaml" leads out of the repository`},
		{"absolute file", input{values: []string{"/etc/passwd"}}, `c: "/etc/passwd" is an absolute path; use a path in the repository`},
		{"remote file", input{values: []string{"https://example.org/v.yaml"}}, "does not exist"},
		{"syntax", input{values: []string{"bad.yaml"}}, "c/bad.yaml:"},
		{"100 MB", input{values: []string{"large.yaml"}}, "c/large.yaml: is larger than 5 MiB"},
		{"parameter", input{parameters: [][2]string{{"a[-1]", "x"}}}, `parameter "a[-1]"`},
		{"list with a gap", input{parameters: [][2]string{{"more[1]", "x"}}}, "panicked"},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := test.in
			in.tree, in.path, in.namespace = repository(t, files+"-- c/bad.yaml --\na: [\n"), "c", "default"
			if test.name == "100 MB" {
				// As the runner writes large files: without content.
				large, err := os.Create(filepath.Join(in.tree, "c/large.yaml"))
				if err == nil {
					err = large.Truncate(100 << 20)
				}
				if err != nil {
					t.Fatal(err)
				}
				large.Close()
			}
			response := render(t, in.helm())
			if found := sentences(response); !strings.Contains(found, test.expected) {
				t.Errorf("found %q, expected %q", found, test.expected)
			}
		})
	}
	long := input{tree: repository(t, files), path: "c", namespace: "default"}.helm()
	long.GetHelm().ReleaseName = strings.Repeat("a", 54)
	if found := sentences(render(t, long)); !strings.Contains(found, "set spec.generator.helm.name") {
		t.Error(found)
	}
}

// A schema of one build must not change the next one.
func TestSchemaOfABuildEndsWithIt(t *testing.T) {
	var with, without input
	for _, in := range inputs(t, "kustomize") {
		switch in.name {
		case "openapi-schema":
			with = in
		case "custom-resource":
			without = in
		}
	}
	before := render(t, without.kustomize()).Documents[0].Yaml
	render(t, with.kustomize())
	if after := render(t, without.kustomize()).Documents[0].Yaml; string(before) != string(after) {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
}

func TestHooksKeepTheirAnnotations(t *testing.T) {
	for _, in := range inputs(t, "helm") {
		if in.name != "hooks" {
			continue
		}
		response := render(t, in.helm())
		var found []string
		for _, document := range response.Documents {
			name, event := "", "none"
			for line := range strings.Lines(string(document.Yaml)) {
				if of, ok := strings.CutPrefix(line, "  name: "); ok {
					name = strings.TrimSpace(of)
				}
				if of, ok := strings.CutPrefix(line, "    helm.sh/hook: "); ok {
					event = strings.TrimSpace(of)
				}
			}
			found = append(found, fmt.Sprintf("%s %s", name, event))
		}
		slices.Sort(found)
		if all := strings.Join(found, ", "); all != "first pre-install, gone pre-delete, last post-install, second pre-install,pre-upgrade, shop-a none" {
			t.Error(all)
		}
		if len(response.Warnings) > 0 {
			t.Error(response.Warnings)
		}
	}
	in := input{tree: repository(t, chartOf+"-- c/templates/a.yaml --\napiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  annotations: {helm.sh/hook: crd-install}\n"), path: "c", namespace: "default"}
	if response := render(t, in.helm()); len(response.Warnings) != 1 || !strings.Contains(response.Warnings[0], `Pod a is a hook for "crd-install", which Helm does not know`) {
		t.Error(response.Warnings)
	}
}

func TestCapabilitiesAreThoseOfTheTarget(t *testing.T) {
	template := "data:\n  version: {{ .Capabilities.KubeVersion.Version }}\n  web: {{ .Capabilities.APIVersions.Has \"x.dev/v1/Web\" | quote }}\n  apps: {{ .Capabilities.APIVersions.Has \"apps/v1\" | quote }}\n"
	in := input{tree: repository(t, chartOf+"-- c/templates/a.yaml --\n"+configMap+template), path: "c", namespace: "default"}
	for _, test := range []struct {
		version  string
		apis     []string
		expected []string
	}{
		{"", nil, []string{"version: v1.35.0", `web: "false"`, `apps: "true"`}},
		{"v1.33.4+k3s1", nil, []string{"version: v1.33.4+k3s1", `apps: "true"`}},
		{"v1.34.0", []string{"x.dev/v1", "x.dev/v1/Web"}, []string{"version: v1.34.0", `web: "true"`, `apps: "false"`}},
	} {
		request := in.helm()
		request.GetHelm().KubeVersion, request.GetHelm().ApiVersions = test.version, test.apis
		response := render(t, request)
		if len(response.Documents) != 1 {
			t.Fatal(sentences(response))
		}
		for _, expected := range test.expected {
			if yaml := string(response.Documents[0].Yaml); !strings.Contains(yaml, expected) {
				t.Errorf("no %s in %s", expected, yaml)
			}
		}
	}
	in.tree = repository(t, strings.Replace(chartOf, "version: 1.0.0\n", "version: 1.0.0\nkubeVersion: \">=1.35\"\n", 1)+"-- c/templates/a.yaml --\n"+configMap)
	request := in.helm()
	request.GetHelm().KubeVersion = "v1.34.0"
	if said := sentences(render(t, request)); !strings.Contains(said, "chart requires kubeVersion: >=1.35 which is incompatible with Kubernetes v1.34.0") {
		t.Error(said)
	}
}

func TestVolatileFunctionsAreReported(t *testing.T) {
	in := input{tree: repository(t, chartOf+"-- c/templates/a.yaml --\n"+configMap+"data: {a: {{ randAlphaNum 5 | quote }}, b: {{ now | quote }}}\n"), path: "c", namespace: "default"}
	response := render(t, in.helm())
	if !response.Volatile || !strings.Contains(strings.Join(response.Warnings, ""), "templates call now, randAlphaNum") {
		t.Error(response.Volatile, response.Warnings)
	}
	in.tree = repository(t, chartOf+"-- c/templates/a.yaml --\n"+configMap)
	if response := render(t, in.helm()); response.Volatile || len(response.Warnings) > 0 {
		t.Error(response.Warnings)
	}
}

func TestPatchWithoutMatchIsReported(t *testing.T) {
	patch := "patches:\n- target: {kind: ConfigMap, name: %s}\n  patch: '[{\"op\": \"add\", \"path\": \"/data\", \"value\": {\"a\": \"b\"}}]'\n"
	for name, expected := range map[string]string{
		"a":   "",
		"a.*": "",
		"web": "s/kustomization.yaml:4: the target of the patch (ConfigMap web) matches no object",
	} {
		files := "-- s/kustomization.yaml --\nnamePrefix: dev-\nresources: [a.yaml]\n" + fmt.Sprintf(patch, name) + "-- s/a.yaml --\n" + configMap
		response := render(t, input{tree: repository(t, files), path: "s"}.kustomize())
		if found := strings.Join(response.Warnings, "\n"); found != expected || len(response.Documents) != 1 {
			t.Errorf("%s: %q, %v", name, found, response.Problems)
		}
	}
}

func TestFilesThatWereReadAreListed(t *testing.T) {
	in := input{tree: repository(t, "-- s/kustomization.yaml --\nresources: [../base]\n-- base/kustomization.yaml --\nresources: [a.yaml]\n-- base/a.yaml --\n"+configMap+"-- base/other.yaml --\n"), path: "s"}
	if files := strings.Join(render(t, in.kustomize()).Files, " "); files != "base/a.yaml base/kustomization.yaml s/kustomization.yaml" {
		t.Error(files)
	}
}

// Files that SOPS encrypted are named, once for each that is read, and rendered with the content that replaces them.
func TestEncryptedFilesAreNamedAndReplaced(t *testing.T) {
	encrypted := "a: ENC[AES256_GCM,data:x,type:str]\nsops: {version: 3.10.2}\n"
	tree := repository(t, chartOf+"-- c/templates/a.yaml --\n"+configMap+"data: {a: {{ .Values.a | quote }}}\n-- c/secrets.yaml --\n"+encrypted+
		"-- other/secrets.yaml --\n"+encrypted)
	request := input{tree: tree, path: "c", namespace: "default", values: []string{"secrets.yaml"}}.helm()
	if response := render(t, request); len(response.Encrypted) != 0 {
		t.Error("nobody asked", response.Encrypted)
	}
	request.ReportEncrypted = true
	response := render(t, request)
	if len(response.Encrypted) != 1 || response.Encrypted[0].Path != "c/secrets.yaml" || string(response.Encrypted[0].Content) != encrypted {
		t.Fatal(response.Encrypted)
	}
	request.Replaced = []*rendererpb.File{{Path: "c/secrets.yaml", Content: []byte("a: plain\n")}}
	response = render(t, request)
	if len(response.Encrypted) != 0 || len(response.Documents) != 1 || !strings.Contains(string(response.Documents[0].Yaml), `a: "plain"`) {
		t.Error(response)
	}
}

func TestOutputIsBounded(t *testing.T) {
	in := input{tree: repository(t, chartOf+"-- c/templates/a.yaml --\n"+configMap+"data: {a: {{ repeat 1000 \"x\" }}}\n"), path: "c", namespace: "default"}
	request := in.helm()
	request.MaxBytes = 1000
	response := render(t, request)
	if len(response.Problems) != 1 || !response.Problems[0].TooLarge || response.Problems[0].File != "c/templates/a.yaml" {
		t.Error(response.Problems)
	}
}

// What the libraries would reach over HTTP is refused in this process, too.
func TestNothingIsDownloaded(t *testing.T) {
	isolate()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	reached := make(chan bool, 1)
	go func() {
		if _, err := listener.Accept(); err == nil {
			reached <- true
		}
	}()
	in := input{tree: repository(t, "-- s/kustomization.yaml --\nopenapi: {path: 'http://"+listener.Addr().String()+"/x'}\nresources: [a.yaml]\n-- s/a.yaml --\n"+configMap), path: "s"}
	if found := sentences(render(t, in.kustomize())); !strings.Contains(found, "is remote") {
		t.Error(found)
	}
	select {
	case <-reached:
		t.Error("the server was reached")
	default:
	}
}
