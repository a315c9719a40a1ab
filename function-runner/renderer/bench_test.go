package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// A kustomization of 100 resources, and a chart of 50 templates: in a warm process, and by the commands.

func hundredResources(b *testing.B) input {
	var files strings.Builder
	files.WriteString("-- s/kustomization.yaml --\nnamePrefix: dev-\nlabels:\n- pairs: {team: shop}\nresources:\n")
	for number := range 100 {
		fmt.Fprintf(&files, "- a%d.yaml\n", number)
	}
	for number := range 100 {
		fmt.Fprintf(&files, "-- s/a%d.yaml --\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a%d}\ndata: {a: b}\n", number, number)
	}
	return input{tree: repository(b, files.String()), path: "s"}
}

func BenchmarkKustomize(b *testing.B) {
	in, warm := hundredResources(b), &renderer{}
	for b.Loop() {
		response, err := warm.Render(b.Context(), in.kustomize())
		if err != nil || len(response.Documents) != 100 {
			b.Fatal(err, response)
		}
	}
}

func BenchmarkKustomizeCommand(b *testing.B) {
	in, command := hundredResources(b), tool(b, "sigs.k8s.io/kustomize/kustomize/v5")
	for b.Loop() {
		run(b, command, "build", filepath.Join(in.tree, in.path))
	}
}

func fiftyTemplates(b *testing.B) input {
	files := "-- c/Chart.yaml --\napiVersion: v2\nname: web\nversion: 1.0.0\n-- c/values.yaml --\nx: y\n"
	for number := range 50 {
		files += fmt.Sprintf("-- c/templates/a%d.yaml --\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-%d\ndata:\n  a: {{ .Values.x | quote }}\n", number, number)
	}
	return input{tree: repository(b, files), path: "c", namespace: "default"}
}

func BenchmarkHelmCommand(b *testing.B) {
	in, command := fiftyTemplates(b), tool(b, "helm")
	for b.Loop() {
		run(b, command, "template", "shop", filepath.Join(in.tree, in.path))
	}
}

func BenchmarkHelm(b *testing.B) {
	in, warm := fiftyTemplates(b), &renderer{}
	for b.Loop() {
		response, err := warm.Render(b.Context(), in.helm())
		if err != nil || len(response.Documents) != 50 {
			b.Fatal(err, response)
		}
	}
}
