package main

import (
	"context"
	"strings"
	"testing"

	"stoa.dev/function-runner/renderer/rendererpb"
	"stoa.dev/xstrings"
)

// variables is the data of most tests.
func variables(config string) *rendererpb.TemplateData {
	return &rendererpb.TemplateData{
		DeploymentTargetName: "hello-edge",
		Namespace:            "dev-drone-hello-edge",
		Environment:          "dev",
		Workspace:            "kaizentm",
		Workload:             "hello",
		Labels:               map[string]string{"application": "greeting", "edge": "true"},
		Manifests:            map[string]string{"repo": "https://example.org/app", "branch": "dev", "path": "./edge"},
		ClusterType:          "drone",
		ConfigData:           []byte(config),
	}
}

func request(config string, texts ...string) *rendererpb.TemplatesRequest {
	return &rendererpb.TemplatesRequest{
		Templates:        []*rendererpb.Template{{Manifests: texts}},
		Data:             []*rendererpb.TemplateData{variables(config)},
		Executions:       []*rendererpb.Execution{{}},
		MaxBytes:         1 << 20,
		MaxResponseBytes: 1 << 24,
		MaxPasses:        5,
		Milliseconds:     5000,
	}
}

func execute(t *testing.T, request *rendererpb.TemplatesRequest) *rendererpb.TemplatesResponse {
	t.Helper()
	response, err := (&renderer{}).ExecuteTemplates(context.Background(), request)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// check compares the result of a text, or the message of its problem, with what is expected of it.
func check(t *testing.T, config, text, expected string) {
	t.Helper()
	executed := execute(t, request(config, text)).Executed[0]
	found := strings.Join(executed.Manifests, "|")
	if executed.Problem != nil {
		found = "error: " + executed.Problem.Message
		expected, isError := strings.CutPrefix(expected, "error: ")
		if !isError || !strings.Contains(found, expected) {
			t.Errorf("%s: found %q, expected %q", text, found, expected)
		}
		return
	}
	if found != expected {
		t.Errorf("%s: found %q, expected %q", text, found, expected)
	}
}

func TestTemplatesHaveKalypsosVariables(t *testing.T) {
	for text, expected := range map[string]string{
		"{{ .DeploymentTargetName }}":                                "hello-edge",
		"{{ .Namespace }}":                                           "dev-drone-hello-edge",
		"{{ .Environment }}.{{ .Workspace}}":                         "dev.kaizentm",
		"{{ .Workload }} on {{ .ClusterType }}":                      "hello on drone",
		"{{ index .Labels \"application\" }}":                        "greeting",
		"{{ .Manifests.repo }}":                                      "https://example.org/app",
		"{{ .ConfigData.REGION }}":                                   "East US",
		"{{ range $k, $v := .Labels }}{{ $k }}={{ $v }},{{ end }}":   "application=greeting,edge=true,",
		"{{ .Nope }}":                                                "error: can't evaluate field Nope in type *main.dataType",
		"{{ .Labels.nope }}":                                         "<no value>",
		"{{ .Manifests.nope }}":                                      "<no value>",
		"{{ hasKey .Labels \"edge\" }}":                              "error: wrong type for value; expected map[string]interface {}; got map[string]string",
		"{{ if eq .Manifests.branch \"dev\" }}a{{ else }}b{{ end }}": "a",
	} {
		check(t, `{"REGION": "East US"}`, text, expected)
	}
}

func TestMissingAndNilValuesStayApart(t *testing.T) {
	const config = `{"a": {"n": null, "s": "x"}}`
	for text, expected := range map[string]string{
		"{{ .ConfigData.nope }}":              "<no value>",
		"{{ .ConfigData.nope.x }}":            "<no value>",
		"{{ .ConfigData.a.nope.x }}":          "<no value>",
		"{{ .ConfigData.a.n }}":               "<no value>",
		"{{ .ConfigData.a.n.x }}":             "error: nil pointer evaluating interface {}.x",
		"{{ .ConfigData.a.s.x }}":             "error: can't evaluate field x in type interface {}",
		"{{ toString .ConfigData.a.n }}":      "<nil>",
		"{{ quote .ConfigData.a.n }}":         "",
		"{{ hasKey .ConfigData.a \"n\" }}":    "true",
		"{{ hasKey .ConfigData.a \"nope\" }}": "false",
		"{{ default \"d\" .ConfigData.a.n }}": "d",
	} {
		check(t, config, text, expected)
	}
}

func TestNumbersAreThoseOfKalypsosDecoder(t *testing.T) {
	const config = `{"i": 8080000, "f": 1.5, "w": 1000000.0, "big": 18446744073709551615, "l": [1, 2]}`
	for text, expected := range map[string]string{
		"{{ .ConfigData.i }}":           "8080000",
		"{{ .ConfigData.f }}":           "1.5",
		"{{ .ConfigData.w }}":           "1e+06",
		"{{ .ConfigData.big }}":         "18446744073709551615",
		"{{ kindOf .ConfigData.i }}":    "int",
		"{{ kindOf .ConfigData.w }}":    "float64",
		"{{ eq .ConfigData.i 8080000}}": "true",
		"{{ eq .ConfigData.w 1 }}":      "error: incompatible types for comparison",
		"{{ toYaml .ConfigData.l }}":    "- 1\n- 2",
		"{{ int \"010\" }}":             "10",
		"{{ int \"0x1f\" }}":            "0",
		"{{ trunc -2 \"abc\" }}":        "error: slice bounds out of range",
	} {
		check(t, config, text, expected)
	}
}

func TestKalypsosFunctionsGiveKalypsosTexts(t *testing.T) {
	const config = `{"a10": "x", "a9": {"c": 1, "b": [true, null]}, "l": ["p", "q"], "s": " \"'quoted'\" ", "e": {}}`
	for text, expected := range map[string]string{
		"{{ toYaml .ConfigData.a9 }}":       "b:\n    - true\n    - null\nc: 1",
		"{{ toYaml .Labels }}":              "application: greeting\nedge: \"true\"",
		"{{ toYaml .ConfigData.e }}":        "{}",
		"{{ stringify .ConfigData }}":       "a9: |\n    b:\n        - true\n        - null\n    c: 1\na10: x\ne: |\n    {}\nl: |\n    - p\n    - q\ns: ' \"''quoted''\" '",
		"{{ stringify .ConfigData.l }}":     "- p\n- q",
		"{{ unquote .ConfigData.s }}":       "quoted",
		"{{ unquote .ConfigData.l }}":       "",
		"{{ hash (dict \"a\" 1 \"b\" 2) }}": "8064784877785481894",
		"{{ hash \"x\" }}":                  "12638153115695167399",
		"{{ eq (hash (dict \"a\" 0)) (hash (dict \"a\" .ConfigData.nope)) }}": "true",
		"{{ keys .ConfigData | join \",\" }}":                                 "a10,a9,e,l,s",
		"{{ values .ConfigData.a9 | len }}":                                   "2",
	} {
		check(t, config, text, expected)
	}
}

func TestCamelcaseIsThatOfItsOldVersion(t *testing.T) {
	for text, expected := range map[string]string{
		"http_server": "HttpServer", "HTTPServer": "HTTPServer", "_complex__case_": "_Complex_Case_", "some words": "SomeWords",
		"no-https": "NoHttps", "GOLANG_IS_GREAT": "GOLANGISGREAT", "a": "A", "_": "__", "": "", "好": "好",
		"FROM CamelCase to snake/kebab-case": "FROMCamelCaseToSnake/kebabCase", " complex -case ": " Complex Case ",
	} {
		if found := xstrings.ToCamelCase(text); found != expected {
			t.Errorf("%q: found %q, expected %q", text, found, expected)
		}
	}
	check(t, "{}", `{{ camelcase "http_server" }} {{ snakecase "HTTPServer" }} {{ kebabcase "http2xx" }}`, "HttpServer http_server http-2xx")
}

func TestFunctionsOfTheMachineAreMissing(t *testing.T) {
	for _, name := range readsMachine {
		check(t, "{}", "{{ "+name+" \"HOME\" }}", "error: function \""+name+"\" not defined")
	}
	// Functions of sprig v3 are unknown to Kalypso.
	for _, call := range []string{"get (dict) \"a\"", "dig \"a\" 1 (dict)", "fromJson \"{}\"", "seq 1", "mustToJson 1"} {
		check(t, "{}", "{{ "+call+" }}", "error: not defined")
	}
}

func TestResultThatIsATemplateIsRenderedAgain(t *testing.T) {
	check(t, `{"a": "{{ .ConfigData.b }}", "b": "{{ .Workload }}"}`, "x {{ .ConfigData.a }}", "x hello")
	check(t, `{"a": "{{ .ConfigData.a }}"}`, "x {{ .ConfigData.a }}", `error: still a template after 5 passes: "{{ .ConfigData.a }}"`)
	check(t, `{"a": "{{ nope }}"}`, "{{ .ConfigData.a }}", `error: the result is a template, and no valid one: template: template:1: function "nope" not defined`)
}

func TestEachTextIsOneManifest(t *testing.T) {
	executed := execute(t, request("{}", "a: 1\n---\nb: 2\n", "", "{{ if false }}x{{ end }}", "c")).Executed[0]
	if found := strings.Join(executed.Manifests, "|"); found != "a: 1\n---\nb: 2\n|c" {
		t.Errorf("found %q", found)
	}
}

func TestProblemNamesManifestAndLine(t *testing.T) {
	for text, line := range map[string]uint32{"a\nb {{ .Nope }}\n": 2, "a\n\n{{ if }}": 3, "{{ fail \"never\" }}": 1} {
		problem := execute(t, request("{}", "fine", text)).Executed[0].Problem
		if problem.GetManifest() != 1 || problem.GetLine() != line {
			t.Errorf("%q: found %v, expected line %d", text, problem, line)
		}
	}
}

// A template that changes its data changes that of no other execution, in whatever order they run.
func TestExecutionsShareNoData(t *testing.T) {
	given := request(`{"a": {"b": 1}}`, "{{ $_ := set .ConfigData.a \"b\" 2 }}", "{{ .ConfigData.a.b }}")
	given.Executions = append(given.Executions, &rendererpb.Execution{})
	given.Templates = append(given.Templates, &rendererpb.Template{Manifests: []string{"{{ .ConfigData.a.b }}"}})
	given.Executions = append(given.Executions, &rendererpb.Execution{Template: 1})
	response := execute(t, given)
	for at, expected := range []string{"2", "2", "1"} {
		if found := strings.Join(response.Executed[at].Manifests, "|"); found != expected {
			t.Errorf("execution %d: found %q, expected %q", at, found, expected)
		}
	}
}

func TestOneBadExecutionFailsAlone(t *testing.T) {
	given := request(`{"a": 1}`, "{{ .ConfigData.a.b }}")
	given.Templates = append(given.Templates, &rendererpb.Template{Manifests: []string{"{{ .Workload }}"}})
	given.Data = append(given.Data, &rendererpb.TemplateData{ConfigData: []byte("[")})
	given.Executions = append(given.Executions, &rendererpb.Execution{Template: 1}, &rendererpb.Execution{Template: 1, Data: 1})
	executed := execute(t, given).Executed
	if executed[0].Problem == nil || executed[1].Problem != nil || executed[2].Problem == nil {
		t.Error(executed)
	}
	given.Executions[0].Template = 7
	if _, err := (&renderer{}).ExecuteTemplates(context.Background(), given); err == nil {
		t.Error("an execution without a template was run")
	}
}

func TestVolatileFunctionsOfTemplatesAreNamed(t *testing.T) {
	executed := execute(t, request("{}", "{{ now | date \"2006\" }} {{ randAlpha 3 }}")).Executed[0]
	if found := strings.Join(executed.Volatile, " "); found != "date now randAlpha" {
		t.Errorf("found %q, %v", found, executed.Problem)
	}
	if executed := execute(t, request("{}", "{{ .Workload }}")).Executed[0]; len(executed.Volatile) > 0 {
		t.Error(executed.Volatile)
	}
}

func TestOutputOfTemplatesIsBounded(t *testing.T) {
	for _, text := range []string{
		"{{ range until 100000 }}some text that is long{{ end }}", "{{ repeat 1000000000 \"x\" }}", "{{ until 1000000000 }}",
		"{{ untilStep 0 1000000000 1 }}", "{{ untilStep 1000000000 0 -1 }}", "{{ range until 99999 }}{{ repeat 500 \"x\" }}{{ end }}",
	} {
		problem := execute(t, request("{}", text)).Executed[0].Problem
		if !problem.GetTooLarge() {
			t.Errorf("%s: found %v", text, problem)
		}
	}
	check(t, "{}", "{{ define \"a\" }}{{ template \"a\" . }}{{ end }}{{ template \"a\" . }}", "error: exceeded maximum template depth")
}

func TestExecutionThatDoesNotEndIsReported(t *testing.T) {
	given := request("{}", "{{ range $i := until 1000000 }}{{ range $j := until 1000000 }}{{ end }}{{ end }}")
	given.Templates = append(given.Templates, &rendererpb.Template{Manifests: []string{"x"}})
	given.Executions = append([]*rendererpb.Execution{{Template: 1}}, given.Executions...)
	given.Executions = append(given.Executions, &rendererpb.Execution{Template: 1})
	given.Milliseconds = 100
	once := &renderer{}
	response, err := once.ExecuteTemplates(context.Background(), given)
	if err != nil {
		t.Fatal(err)
	}
	if !response.IsSpent || len(response.Executed) != 2 || !response.Executed[1].Problem.GetTookTooLong() {
		t.Error(response)
	}
	if _, err := once.ExecuteTemplates(context.Background(), request("{}", "x")); err == nil {
		t.Error("a spent renderer executes")
	}
}

func TestLargeResponseEndsEarly(t *testing.T) {
	given := request("{}", "{{ repeat 1000 \"x\" }}")
	given.MaxResponseBytes = 2500
	for range 9 {
		given.Executions = append(given.Executions, &rendererpb.Execution{})
	}
	if response := execute(t, given); len(response.Executed) != 3 || response.IsSpent {
		t.Errorf("%d executions", len(response.Executed))
	}
}
