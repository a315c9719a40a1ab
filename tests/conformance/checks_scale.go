package main

// scale is a trawler's, as a client writes it.
func scale(more ...any) map[string]any {
	return with(map[string]any{
		"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": map[string]any{"name": "a"}, "spec": map[string]any{"replicas": 2},
	}, more...)
}

// The number of a trawler's nets as a Scale.
func init() {
	path := func(s *session) string { return s.trawler("a") + "/scale" }
	nets := func(s *session) {
		a := s.do("GET", s.trawler("a"), nil, quiet)
		s.say("nets %v, generation %v", a.at("spec", "nets"), a.at("metadata", "generation"))
	}
	track := func(name string, ask func(*session)) {
		addCustom("scale", name, func(s *session) {
			s.setup("POST", s.trawlers()+"?fieldManager=maker", trawler("a", "spec.nets", 3))
			ask(s)
		})
	}
	track("is read", func(s *session) {
		s.do("GET", path(s), nil)
		s.setup("PATCH", s.trawler("a")+"/status", `{"status":{"nets":1,"crew":"ship=a"}}`, contentType(merge))
		a := s.do("GET", path(s), nil)
		s.say("the version of its trawler: %t", a.rv() == s.do("GET", s.trawler("a"), nil, quiet).rv())
		for _, form := range []string{"application/yaml", asPartial, asTable, asPartialList} {
			s.do("GET", path(s), nil, accept(form))
		}
		s.do("GET", s.trawler("none")+"/scale", nil)
	})
	track("of a trawler without nets", func(s *session) {
		s.setup("PATCH", s.trawler("a"), `{"spec":{"nets":null}}`, contentType(merge))
		s.do("GET", path(s), nil)
		s.do("PATCH", path(s), `{"metadata":{"labels":{"l":"1"}}}`, contentType(merge))
		s.do("PATCH", path(s), `{"spec":{"replicas":1}}`, contentType(merge))
		nets(s)
	})
	track("is replaced", func(s *session) {
		s.do("PUT", path(s), scale())
		nets(s)
		s.do("PUT", path(s), scale())
		nets(s)
		s.do("PUT", path(s), scale("spec", nil))
		nets(s)
		s.do("PUT", path(s), scale("spec.replicas", 5, "metadata.resourceVersion", "1"))
		s.do("PUT", path(s), scale("metadata.resourceVersion", "abc"))
		s.do("PUT", path(s), scale("metadata.uid", "other"))
		s.do("PUT", path(s), scale("metadata.name", "b"))
		s.do("PUT", path(s), scale("metadata.name", nil))
		s.do("PUT", path(s), scale("metadata.namespace", "default"))
		s.do("PUT", path(s), scale("metadata.labels", map[string]any{"l": "1"}, "spec.replicas", 6, "status.replicas", 9))
		s.do("PUT", path(s)+"?dryRun=All", scale("spec.replicas", 7))
		s.do("PUT", s.trawler("none")+"/scale", scale("metadata.name", "none"))
		nets(s)
	})
	track("of wrong values", func(s *session) {
		s.do("PUT", path(s), scale("spec.replicas", -1))
		// A custom resource's decoder has no words of its own for these.
		s.do("PUT", path(s), scale("spec.replicas", "x"), brief)
		s.do("PUT", path(s), scale("kind", "Trawler"), brief)
		s.do("PUT", path(s)+"?fieldValidation=Strict", scale("spec.unknown", 1), brief)
		s.do("PUT", path(s), scale("spec.unknown", 1))
		s.do("PATCH", path(s), `{"spec":{"replicas":-1}}`, contentType(merge))
		s.do("PATCH", s.trawler("a"), `{"spec":{"nets":-1}}`, contentType(merge))
		s.do("PATCH", s.trawler("a"), `{"spec":{"nets":3000000000}}`, contentType(merge))
		s.do("PATCH", s.trawler("a")+"/status", `{"status":{"nets":-1}}`, contentType(merge))
		nets(s)
	})
	track("is patched", func(s *session) {
		s.do("PATCH", path(s), `{"spec":{"replicas":4}}`, contentType(merge))
		nets(s)
		s.do("PATCH", path(s), `[{"op":"test","path":"/spec/replicas","value":4},{"op":"replace","path":"/spec/replicas","value":5}]`, contentType(jsonPatch))
		s.do("PATCH", path(s), `[{"op":"test","path":"/spec/replicas","value":4}]`, contentType(jsonPatch))
		s.do("PATCH", path(s), `{"metadata":{"resourceVersion":"1"},"spec":{"replicas":8}}`, contentType(merge))
		s.do("PATCH", path(s), `{"spec":{"replicas":5}}`, contentType(merge))
		s.do("PATCH", path(s), `{}`, contentType(merge))
		nets(s)
	})
	track("and who owns the nets", func(s *session) {
		// What the maker owns of maps around its fields is another thing of custom resources than of typed kinds.
		show := func() {
			entries, _ := s.do("GET", s.trawler("a"), nil, quiet).at("metadata", "managedFields").([]any)
			for _, entry := range entries {
				if entry, _ := entry.(map[string]any); entry["manager"] != "maker" {
					s.say("%s", compact(s.value("", entry)))
				} else if fields, _ := entry["fieldsV1"].(map[string]any)["f:spec"].(map[string]any); fields != nil {
					s.say("the maker owns the nets: %t", fields["f:nets"] != nil)
				}
			}
		}
		s.setup("PATCH", path(s)+"?fieldManager=scaler", `{"spec":{"replicas":4}}`, contentType(merge))
		show()
		s.setup("PATCH", path(s)+"?fieldManager=scaler", `{"spec":{"replicas":4}}`, contentType(merge))
		s.setup("PUT", path(s)+"?fieldManager=other", scale("spec.replicas", 6))
		show()
		configuration := trawler("a", "spec.nets", 7)
		s.do("PATCH", s.trawler("a")+"?fieldManager=me", configuration, contentType(apply))
		s.setup("PATCH", s.trawler("a")+"?fieldManager=me&force=true", configuration, contentType(apply))
		s.do("PATCH", path(s)+"?fieldManager=me", scale("spec.replicas", 8), contentType(apply))
		s.do("PATCH", path(s)+"?fieldManager=you", scale("spec.replicas", 9), contentType(apply))
		show()
	})
	track("as who may not", func(s *session) {
		s.do("GET", path(s), nil, as("nobody"))
		s.do("PATCH", path(s), `{}`, contentType(merge), as("nobody"))
	})
}
