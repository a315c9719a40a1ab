package main

import (
	"fmt"
	"strings"
)

// Deletes, and deletes of collections.
func init() {
	add("delete", "a policy that is no text", func(s *session) { s.do("DELETE", s.flunder("none"), `{"propagationPolicy":5}`) })
	hidden := func(r *request) { r.unshownBody = true }
	finalized := []any{"metadata.finalizers", []string{"example.com/x"}}
	one := func(name, query string, body any, options ...option) {
		add := add
		if about := query + string(encode(body)); strings.Contains(about, "rphan") || strings.Contains(about, "Foreground") {
			// Where a garbage collector sees the objects, it goes on with them at once.
			add = addDirect
		}
		add("delete", name, func(s *session) {
			s.create("a")
			s.do("DELETE", s.flunder("a")+query, body, options...)
			s.do("GET", s.flunder("a"), nil)
			s.create("b", finalized...)
			s.do("DELETE", s.flunder("b")+query, body, options...)
			s.do("GET", s.flunder("b"), nil)
		})
	}
	deleteOptions := func(more ...any) map[string]any {
		return with(map[string]any{"apiVersion": "v1", "kind": "DeleteOptions"}, more...)
	}
	one("an object", "", nil)
	one("dry", "?dryRun=All", nil)
	one("dry in another way", "?dryRun=Some", nil)
	one("dry by the body", "", deleteOptions("dryRun", []string{"All"}))
	one("dry by the body in another way", "", deleteOptions("dryRun", []string{"Some"}))
	for _, policy := range []string{"Foreground", "Background", "Orphan", "Other", ""} {
		one("propagationPolicy="+policy, "?propagationPolicy="+policy, nil)
		one("propagationPolicy "+policy+" by the body", "", deleteOptions("propagationPolicy", policy))
	}
	for _, value := range []string{"true", "false", "abc", ""} {
		one("orphanDependents="+value, "?orphanDependents="+value, nil)
	}
	one("orphanDependents by the body", "", deleteOptions("orphanDependents", true))
	one("both ways to orphan", "", deleteOptions("orphanDependents", true, "propagationPolicy", "Foreground"))
	one("both ways to orphan by the query", "?orphanDependents=true&propagationPolicy=Orphan", nil)
	one("an unknown policy, dry in another way", "?propagationPolicy=Other&dryRun=Some", nil)
	one("a grace period", "?gracePeriodSeconds=30", nil)
	one("a grace period of 0", "?gracePeriodSeconds=0", nil)
	one("a grace period that is none", "?gracePeriodSeconds=abc", nil)
	one("a negative grace period", "?gracePeriodSeconds=-1", nil)
	one("a negative grace period by the body", "", deleteOptions("gracePeriodSeconds", -1))
	one("another uid", "", deleteOptions("preconditions", map[string]any{"uid": "other"}))
	one("another version", "", deleteOptions("preconditions", map[string]any{"resourceVersion": "1"}))
	one("empty preconditions", "", deleteOptions("preconditions", map[string]any{}))
	one("options of meta", "", with(deleteOptions(), "apiVersion", "meta.k8s.io/v1"))
	one("options of its own group", "", with(deleteOptions(), "apiVersion", groupVersion))
	one("options of an unknown group", "", with(deleteOptions(), "apiVersion", "other.example.com/v1"))
	one("options of another kind", "", with(deleteOptions(), "kind", "Status"))
	one("options of no kind", "", `{}`)
	one("options of a kind alone", "", `{"kind":"DeleteOptions"}`)
	one("options of an unknown field", "", deleteOptions("unknown", 1))
	one("options of a wrong type", "", deleteOptions("gracePeriodSeconds", "x"))
	one("options that are malformed", "", `{`)
	one("options that are null", "", `null`)
	one("options that are a list", "", `[]`)
	one("options in YAML", "", "apiVersion: v1\nkind: DeleteOptions\npropagationPolicy: Foreground\n", contentType("application/yaml"))
	one("options in another format", "", "x", contentType("text/plain"))
	one("options in both places", "?propagationPolicy=Orphan", deleteOptions("propagationPolicy", "Foreground"))
	one("ignoring what cannot be read", "?ignoreStoreReadErrorWithClusterBreakingPotential=true", nil)
	one("an unknown option", "?unknown=1", nil)
	one("answered as metadata", "", nil, accept(asPartial))
	one("answered as a table", "", nil, accept(asTable))
	one("answered as a metadata list", "", nil, accept(asPartialList))
	one("answered in YAML", "", nil, accept("application/yaml"))
	add("delete", "with the right preconditions", func(s *session) {
		a := s.create("a")
		body := deleteOptions("preconditions", map[string]any{"uid": a.uid(), "resourceVersion": a.rv()})
		s.do("DELETE", s.flunder("a"), body, hidden)
		b := s.create("b")
		body = deleteOptions("preconditions", map[string]any{"uid": b.uid(), "resourceVersion": "1"})
		s.do("DELETE", s.flunder("b"), body, hidden)
	})
	add("delete", "what is not there", func(s *session) {
		s.do("DELETE", s.flunder("none"), nil)
		s.do("DELETE", s.flunder("none")+"?dryRun=All", nil)
		s.do("DELETE", s.flunder("none"), deleteOptions("preconditions", map[string]any{"uid": "x"}))
	})
	addDirect("delete", "what is going", func(s *session) {
		s.create("a", finalized...)
		first := s.do("DELETE", s.flunder("a"), nil)
		second := s.do("DELETE", s.flunder("a"), nil)
		s.say("the same version: %t", first.rv() == second.rv())
		third := s.do("DELETE", s.flunder("a")+"?propagationPolicy=Foreground", nil)
		s.say("the same version: %t", second.rv() == third.rv())
	})
	addDirect("delete", "in the foreground, to its end", func(s *session) {
		s.create("a")
		s.do("DELETE", s.flunder("a")+"?propagationPolicy=Foreground", nil)
		s.do("GET", s.flunder("a"), nil)
		s.do("DELETE", s.flunder("a")+"?propagationPolicy=Orphan", nil)
		s.do("PATCH", s.flunder("a"), `{"metadata":{"finalizers":null}}`, contentType(merge))
		s.do("GET", s.flunder("a"), nil)
	})
	addDirect("delete", "an object that asks to be orphaned", func(s *session) {
		s.create("a", "metadata.finalizers", []string{"orphan"})
		s.do("DELETE", s.flunder("a"), nil)
		s.create("b", "metadata.finalizers", []string{"orphan"})
		s.do("DELETE", s.flunder("b")+"?propagationPolicy=Background", nil)
		s.create("c", "metadata.finalizers", []string{"foregroundDeletion"})
		s.do("DELETE", s.flunder("c")+"?propagationPolicy=Orphan", nil)
	})
	add("delete", "a fischer", func(s *session) {
		s.setup("POST", fischers, fischer(s.name("f")))
		s.do("DELETE", fischers+"/"+s.name("f"), nil)
	})

	all := func(name, query string, body any, options ...option) {
		add("deletecollection", name, func(s *session) {
			s.three()
			s.create("d", finalized...)
			s.do("DELETE", s.flunders()+query, body, options...)
			left := s.do("GET", s.flunders(), nil, quiet)
			items, _ := left.at("items").([]any)
			s.say("%d are left", len(items))
		})
	}
	all("everything", "", nil)
	all("a label", "?labelSelector=app%3Dx", nil)
	all("a name", "?fieldSelector=metadata.name%3Da", nil)
	all("nothing", "?labelSelector=none", nil)
	all("dry", "?dryRun=All", nil)
	all("dry in another way", "?dryRun=Some", nil)
	all("a bad selector", "?labelSelector=a+b", nil)
	all("an unknown field", "?fieldSelector=spec.x%3Dy", nil)
	all("another uid", "", deleteOptions("preconditions", map[string]any{"uid": "other"}))
	// Dry, since a garbage collector goes on with it where the server is registered.
	all("foreground", "?dryRun=All&propagationPolicy=Foreground", nil)
	all("an unknown policy", "?propagationPolicy=Other", nil)
	all("initial events, with options of a wrong type", "?sendInitialEvents=true", `{"dryRun":5}`)
	all("a bad selector, with options in another format", "?fieldSelector=metadata.name", "x", contentType("text/plain"))
	all("a limit", "?limit=2", nil)
	all("a bad limit", "?limit=x", nil)
	all("any version", "?resourceVersion=0", nil)
	all("options of a body", "", deleteOptions("propagationPolicy", "Background"))
	all("malformed options", "", `{`)
	all("answered as metadata", "", nil, accept(asPartialList))
	all("answered as a table", "", nil, accept(asTable))
	all("answered in YAML", "", nil, accept("application/yaml"))
	all("a bad match", "?resourceVersionMatch=Exact", nil)
	all("ignoring what cannot be read", "?ignoreStoreReadErrorWithClusterBreakingPotential=true", nil)
	all("as a watch", "?watch=true", nil)
	all("as a watch, with a match", "?watch=true&resourceVersion=1&resourceVersionMatch=NotOlderThan", deleteOptions())
	add("deletecollection", "as it was", func(s *session) {
		then := s.create("a").rv()
		s.create("b")
		s.do("DELETE", s.flunders()+"?resourceVersion="+then, deleteOptions(), unshownQuery(then))
		s.do("GET", s.flunder("b"), nil)
	})
	add("deletecollection", "of nothing", func(s *session) { s.do("DELETE", s.flunders(), nil) })
	add("deletecollection", "of fischers", func(s *session) {
		for i := range 2 {
			s.setup("POST", fischers, fischer(s.name(fmt.Sprint(i)), "metadata.labels", map[string]any{"mark": s.name("l")}))
		}
		s.do("DELETE", fischers+"?labelSelector=mark%3D"+s.name("l"), nil)
	})
}
