package main

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const fleet = "/apis/fleet.example.com/v1"

// defineTrawlers makes trawlers a custom resource, as the subject's are defined, and waits until they are served.
func (b *bed) defineTrawlers(ctx context.Context) error {
	properties := func(more map[string]any) map[string]any { return map[string]any{"type": "object", "properties": more} }
	text := map[string]any{"type": "string"}
	spec := properties(map[string]any{
		"port": text, "nets": map[string]any{"type": "integer", "format": "int64"},
		"draught": map[string]any{"type": "number", "format": "double"},
		"hold":    map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
	})
	spec["required"] = []any{"port"}
	root := properties(map[string]any{"spec": spec, "status": properties(map[string]any{
		"position": text, "nets": map[string]any{"type": "integer", "format": "int64"}, "crew": text,
	})})
	root["required"] = []any{"spec"}
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "trawlers.fleet.example.com"},
		"spec": map[string]any{
			"group": "fleet.example.com", "scope": "Namespaced",
			"names": map[string]any{
				"kind": "Trawler", "plural": "trawlers", "singular": "trawler", "shortNames": []any{"tr"}, "categories": []any{"fleet"},
			},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": root},
				"subresources": map[string]any{
					"status": map[string]any{},
					"scale":  map[string]any{"specReplicasPath": ".spec.nets", "statusReplicasPath": ".status.nets", "labelSelectorPath": ".status.crew"},
				},
				"selectableFields": []any{map[string]any{"jsonPath": ".spec.port"}},
			}},
		},
	}}
	return b.define(ctx, definition, fleet+"/trawlers")
}

func (s *session) trawlers() string           { return fleet + "/namespaces/" + s.ns() + "/trawlers" }
func (s *session) trawler(name string) string { return s.trawlers() + "/" + name }

func trawler(name string, more ...any) map[string]any {
	o := map[string]any{
		"apiVersion": "fleet.example.com/v1", "kind": "Trawler", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"port": "Hull"},
	}
	return with(o, more...)
}

// Status, generations and selectable fields.
func init() {
	hidden := func(r *request) { r.unshownBody = true }
	// change is do, and says what became of version and generation.
	change := func(s *session, method, path string, body any, options ...option) *answer {
		before := s.do("GET", s.trawler("a"), nil, quiet)
		a := s.do(method, path, body, options...)
		after := s.do("GET", s.trawler("a"), nil, quiet)
		s.say("generation %v, another version %t", after.at("metadata", "generation"), before.rv() != after.rv())
		return a
	}
	// put replaces a trawler, or its status, at the version that it has.
	put := func(s *session, path string, more ...any) {
		current := s.do("GET", s.trawler("a"), nil, quiet)
		change(s, "PUT", path, with(current.json, append([]any{"metadata.managedFields", nil}, more...)...), hidden)
	}
	track := func(area, name string, ask func(*session)) {
		addCustom(area, name, func(s *session) {
			s.setup("POST", s.trawlers(), trawler("a"))
			ask(s)
		})
	}
	addCustom("status", "of what is created", func(s *session) {
		s.do("POST", s.trawlers(), trawler("a", "status.position", "x", "metadata.generation", 7))
		a := s.do("GET", s.trawler("a")+"/status", nil)
		s.say("generation %v", a.at("metadata", "generation"))
	})
	track("status", "and the rest are written apart", func(s *session) {
		put(s, s.trawler("a"), "spec.nets", 3, "status.position", "x")
		put(s, s.trawler("a")+"/status", "spec.nets", 4, "status.position", "x")
		put(s, s.trawler("a")+"/status", "status.position", "x")
		put(s, s.trawler("a"), "spec.nets", 5, "status", nil)
		put(s, s.trawler("a"))
		put(s, s.trawler("a")+"/status", "status", nil)
		s.do("GET", s.trawler("a"), nil)
		s.do("GET", s.trawler("a")+"/status", nil)
	})
	track("status", "with metadata", func(s *session) {
		put(s, s.trawler("a")+"/status", "status.position", "x", "metadata.labels", map[string]any{"l": "1"}, "metadata.annotations", map[string]any{"n": "1"})
		put(s, s.trawler("a")+"/status", "metadata.finalizers", []any{"example.com/f"})
	})
	for _, media := range []string{merge, jsonPatch} {
		track("status", "patched as "+media, func(s *session) {
			s.setup("PATCH", s.trawler("a")+"/status", `{"status":{}}`, contentType(merge))
			patches := []string{
				`{"status":{"position":"x"}}`, `{"status":{"position":"x"},"spec":{"port":"Grimsby"}}`, `{"spec":{"port":"Grimsby"}}`, `{}`, `{"status":{"unknown":1}}`, `{"status":null}`,
			}
			if media == jsonPatch {
				patches = []string{
					`[{"op":"add","path":"/status/position","value":"x"}]`, `[{"op":"add","path":"/status/position","value":"y"},{"op":"add","path":"/spec/nets","value":7}]`,
					`[{"op":"replace","path":"/spec/port","value":"Grimsby"}]`, `[]`, `[{"op":"remove","path":"/status/position"}]`, `[{"op":"test","path":"/status/position","value":"z"}]`,
				}
			}
			for _, patch := range patches {
				change(s, "PATCH", s.trawler("a")+"/status", patch, contentType(media))
				change(s, "PATCH", s.trawler("a"), patch, contentType(media))
			}
		})
	}
	for _, hold := range []string{
		`{"new":[{"a":null,"b":1},null,[{"c":null}]]}`, `{"list":[{"a":null}]}`, `{"text":{"l":[{"a":null}],"m":null}}`, `{"map":[{"a":null}]}`, `{"map":{"l":[{"a":null}],"x":null}}`,
	} {
		track("patch", "nulls within "+hold, func(s *session) {
			s.setup("PATCH", s.trawler("a"), `{"spec":{"hold":{"list":[1],"text":"x","map":{"x":1}}}}`, contentType(merge))
			change(s, "PATCH", s.trawler("a"), `{"spec":{"hold":`+hold+`}}`, contentType(merge))
			change(s, "PATCH", s.trawler("a"), `{"spec":{"hold":`+hold+`}}`, contentType(merge))
		})
	}
	track("status", "applied", func(s *session) {
		s.full = true
		configuration := func(more ...any) map[string]any { return with(trawler("a", "spec", nil), more...) }
		by := func(query, path string, body any) {
			change(s, "PATCH", path+"?"+query, body, contentType(apply))
		}
		by("fieldManager=me", s.trawler("a")+"/status", configuration("status.position", "x"))
		by("fieldManager=you", s.trawler("a")+"/status", configuration("status.position", "y"))
		by("fieldManager=you&force=true", s.trawler("a")+"/status", configuration("status.position", "y"))
		by("fieldManager=you", s.trawler("a")+"/status", configuration("status.position", "y", "spec.nets", 9))
		by("fieldManager=you", s.trawler("a"), configuration("spec.port", "Hull", "status.position", "z"))
		by("fieldManager=you", s.trawler("a")+"/status", configuration())
		by("fieldManager=me", s.trawler("none")+"/status", with(configuration("status.position", "x"), "metadata.name", "none"))
	})
	track("status", "at other versions", func(s *session) {
		a := s.do("GET", s.trawler("a"), nil, quiet)
		s.do("PUT", s.trawler("a")+"/status", with(a.json, "metadata.resourceVersion", "1", "status.position", "x"), hidden)
		s.do("PUT", s.trawler("a")+"/status", with(a.json, "metadata.resourceVersion", nil, "status.position", "x"), hidden)
		s.do("PUT", s.trawler("a")+"/status", with(a.json, "metadata.uid", "other", "status.position", "x"), hidden)
		s.do("PUT", s.trawler("a")+"/status", with(a.json, "metadata.name", "b", "status.position", "x"), hidden)
		s.do("PATCH", s.trawler("a")+"/status", `{"metadata":{"resourceVersion":"1"},"status":{"position":"x"}}`, contentType(merge))
		change(s, "PUT", s.trawler("a")+"/status?dryRun=All", with(a.json, "status.position", "x"), hidden)
	})
	track("status", "of what is not there", func(s *session) {
		s.do("GET", s.trawler("none")+"/status", nil)
		s.do("PUT", s.trawler("none")+"/status", trawler("none", "metadata.resourceVersion", "5"))
		s.do("PATCH", s.trawler("none")+"/status", `{}`, contentType(merge))
	})
	for _, method := range []string{"POST", "DELETE", "HEAD", "OPTIONS"} {
		track("status", method, func(s *session) { s.do(method, s.trawler("a")+"/status", nil) })
	}
	track("status", "in other forms", func(s *session) {
		s.do("GET", s.trawler("a")+"/status", nil, accept(asPartial))
		s.do("GET", s.trawler("a")+"/status", nil, accept("application/yaml"))
	})
	track("status", "as who may not", func(s *session) {
		s.do("GET", s.trawler("a")+"/status", nil, as("nobody"))
		s.do("PATCH", s.trawler("a")+"/status", `{}`, contentType(merge), as("nobody"))
	})

	track("values", "that are refused after all else", func(s *session) {
		invalid := trawler("a", "spec.port", nil, "spec.nets", 1)
		s.do("POST", s.trawlers(), invalid)
		s.do("POST", s.trawlers(), with(invalid, "metadata.name", "b"))
		s.do("PUT", s.trawler("none"), with(invalid, "metadata.name", "none", "metadata.resourceVersion", "5"))
		s.do("PUT", s.trawler("a"), with(invalid, "metadata.resourceVersion", "1"))
		a := s.do("GET", s.trawler("a"), nil, quiet)
		s.do("PUT", s.trawler("a"), with(invalid, "metadata.resourceVersion", a.rv()), hidden)
		s.do("PATCH", s.trawler("a"), `{"spec":{"port":null}}`, contentType(merge))
		s.do("PATCH", s.trawler("none"), `{"spec":{"port":null}}`, contentType(merge))
		s.do("PATCH", s.trawler("a"), `{"metadata":{"resourceVersion":"1"},"spec":{"port":null}}`, contentType(merge))
		s.do("PATCH", s.trawler("b")+"?fieldManager=m", invalid, contentType(apply))
	})
	track("generation", "of changes", func(s *session) {
		for _, patch := range []string{
			`{"metadata":{"labels":{"l":"1"}}}`, `{"metadata":{"annotations":{"l":"1"}}}`, `{"metadata":{"finalizers":["example.com/f"]}}`, `{"spec":{"nets":1}}`, `{"spec":{"nets":1}}`,
			`{"spec":{"nets":null}}`, `{"metadata":{"generation":50}}`, `{"metadata":{"generation":50},"spec":{"nets":2}}`,
		} {
			change(s, "PATCH", s.trawler("a"), patch, contentType(merge))
		}
		change(s, "DELETE", s.trawler("a"), nil)
		change(s, "DELETE", s.trawler("a"), nil)
		change(s, "PATCH", s.trawler("a"), `{"spec":{"nets":3}}`, contentType(merge))
		s.do("PATCH", s.trawler("a"), `{"metadata":{"finalizers":null}}`, contentType(merge))
	})

	names := func(s *session, query string) {
		a := s.do("GET", s.trawlers()+"?"+query, nil, quiet)
		s.say("GET %s: %d %s", query, a.code, a.text("message"))
		items, _ := a.at("items").([]any)
		for _, item := range items {
			metadata, _ := item.(map[string]any)["metadata"].(map[string]any)
			s.say("  %v", metadata["name"])
		}
	}
	track("selectable fields", "of lists and watches", func(s *session) {
		s.setup("POST", s.trawlers(), trawler("b", "spec.port", "Grimsby"))
		list := s.do("GET", s.trawlers(), nil, quiet)
		for _, selector := range []string{
			"spec.port%3DHull", "spec.port!%3DHull", "spec.port%3D", "spec.port%3DHull,metadata.name%3Da", "spec.port%3DHull,metadata.name%3Db", "spec.nets%3D1", "spec%3Dx", "status.position%3D",
			"spec.port", "spec.port%3DHull,spec.port%3DGrimsby",
		} {
			names(s, "fieldSelector="+selector)
		}
		s.setup("PATCH", s.trawler("b"), `{"spec":{"port":"Hull"}}`, contentType(merge))
		s.setup("PATCH", s.trawler("a"), `{"spec":{"port":"Grimsby"}}`, contentType(merge))
		s.watch(s.trawlers()+"?watch=true&timeoutSeconds=5&fieldSelector=spec.port%3DHull&resourceVersion="+list.rv(), nil, after(2), unshownQuery(list.rv()))
		s.do("DELETE", s.trawlers()+"?fieldSelector=spec.port%3DGrimsby", nil, brief)
		names(s, "")
	})
	addCustom("discovery", "of trawlers", func(s *session) {
		list := s.do("GET", fleet, nil, quiet)
		resources, _ := list.at("resources").([]any)
		for _, resource := range resources {
			s.say("%s", compact(resource))
		}
	})
}
