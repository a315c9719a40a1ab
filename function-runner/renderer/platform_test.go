package main

import (
	"fmt"
	"strings"
	"testing"

	"stoa.dev/function-runner/renderer/rendererpb"
)

// Values of the platform lie between those of the chart and of files, and files set no final one.
func TestPlatformValuesAreWeakerThanFiles(t *testing.T) {
	tree := repository(t, chartOf+"-- c/values.yaml --\nregion: chart\nimage: {tag: chart, pull: Always}\nreplicas: 1\nzones: []\n"+
		"-- c/templates/a.yaml --\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  all: {{ list .Values.region .Values.image .Values.replicas .Values.zones | toJson | quote }}\n"+
		"-- c/dev.yaml --\nreplicas: 3\n-- c/region.yaml --\nregion: us\n")
	values := []*rendererpb.Value{
		{Name: "region", Json: `"eu"`, Origin: "VariableSet eu", IsFinal: true},
		{Name: "image", Json: `{"tag": "platform"}`, Origin: "Workspace dev"},
		{Name: "replicas", Json: "2", Origin: "Workspace dev"},
		{Name: "zones", Json: `["a", 1]`, Origin: "VariableSet eu"},
	}
	rendered := func(file string, parameters ...[2]string) *rendererpb.RenderResponse {
		request := input{tree: tree, path: "c", namespace: "default", values: []string{file}, parameters: parameters}.helm()
		request.GetHelm().Values = values
		return render(t, request)
	}
	response := rendered("dev.yaml", [2]string{"image.tag", "parameter"})
	if len(response.Problems) > 0 || len(response.Documents) != 1 {
		t.Fatal(response)
	}
	expected := `all: "[\"eu\",{\"pull\":\"Always\",\"tag\":\"parameter\"},3,[\"a\",1]]"`
	if found := string(response.Documents[0].Yaml); !strings.Contains(found, expected) {
		t.Errorf("found %s, expected %s", found, expected)
	}
	if found := sentences(rendered("region.yaml")); found != `c/region.yaml: value "region" is final in VariableSet eu; remove it from this file` {
		t.Errorf("found %q", found)
	}
}

// Each value has the files that set it, the weakest first, with their lines.
func TestValuesNameTheirFilesAndLines(t *testing.T) {
	tree := repository(t, chartOf+"-- c/values.yaml --\n# defaults\nreplicas: 1\nimage:\n  tag: a\n"+
		"-- c/charts/db/Chart.yaml --\napiVersion: v2\nname: db\nversion: 1.2.0\n-- c/charts/db/values.yaml --\nsize: 1\n"+
		"-- c/dev.yaml --\nextra: 1\nreplicas: 3\n-- env/eu.yaml --\nreplicas: 4\n")
	response := render(t, input{tree: tree, path: "c", namespace: "default", values: []string{"dev.yaml", "../env/eu.yaml"}}.helm())
	if len(response.Problems) > 0 {
		t.Fatal(response.Problems)
	}
	var found []string
	for _, origin := range response.Origins {
		found = append(found, fmt.Sprintf("%s %s:%d %v%s", origin.Name, origin.File, origin.Line, origin.IsDefault, origin.Subchart))
	}
	expected := "db c/charts/db/values.yaml:0 truedb, extra c/dev.yaml:1 false, image c/values.yaml:3 true, " +
		"replicas c/values.yaml:2 true, replicas c/dev.yaml:2 false, replicas env/eu.yaml:1 false"
	if found := strings.Join(found, ", "); found != expected {
		t.Errorf("found %s, expected %s", found, expected)
	}
	if len(response.Subcharts) != 1 || response.Subcharts[0].Version != "1.2.0" || response.Subcharts[0].Path != "c/charts/db" {
		t.Errorf("found %v", response.Subcharts)
	}
}
