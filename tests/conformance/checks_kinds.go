package main

import "net/url"

// ofStoa is the area of Stoa's own kinds.
const ofStoa = "kinds of Stoa"

// What stoa-apiserver makes of its own kinds, where a custom resource is no other than a typed kind: what is told of objects of
// another kind, of forms that there are not, and of some fields that may not change is compared with the sample-apiserver's.
func init() {
	hidden := func(r *request) { r.unshownBody = true }
	for _, k := range kinds {
		ask := func(name string, ask func(*collection)) {
			checks = append(checks, &check{area: ofStoa, name: k.plural + ", " + name, stoa: true, ask: func(s *session) {
				c := &collection{s, k}
				// What is left over would be told of by lists of everything.
				defer c.do("DELETE", c.own(""), nil, quiet)
				ask(c)
			}})
		}
		ask("created", func(c *collection) {
			c.do("POST", c.all(), c.object("a", "spec.description", "one"))
			c.do("POST", c.all(), c.object("a"))
			c.do("POST", c.all()+"?dryRun=All", c.object("b"))
			c.do("GET", c.one("b"), nil)
			c.do("POST", c.all()+"?dryRun=All", c.object("", "metadata.name", nil, "metadata.generateName", "generated-"))
			c.do("GET", c.one("a"), nil)
		})
		ask("refused", func(c *collection) {
			for _, more := range [][]any{
				{"metadata.name", nil}, {"metadata.name", "UPPER"}, {"metadata.name", "a_b"}, {"metadata.namespace", "default"}, {"metadata.labels", map[string]any{"bad key!": "x"}},
				{"metadata.ownerReferences", []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner"}}},
				{"spec", nil}, {"spec.unknown", 1},
			} {
				for _, query := range []string{"?dryRun=All", "?dryRun=All&fieldValidation=Strict", "?dryRun=All&fieldValidation=Ignore"} {
					c.do("POST", c.all()+query, c.object("a", more...))
				}
			}
			c.do("POST", c.all(), `{`)
			c.do("POST", c.all(), c.object("a"), contentType("application/cbor"))
		})
		ask("read", func(c *collection) {
			c.make("a")
			for _, form := range []string{"application/json", "application/yaml"} {
				c.do("GET", c.one("a"), nil, accept(form))
				c.do("GET", c.own(""), nil, accept(form))
			}
			c.do("GET", c.one("a"), nil, accept(asPartial))
			c.do("GET", c.own(""), nil, accept(asPartialList))
			c.do("GET", c.one("none"), nil)
			c.do("GET", c.own("&fieldSelector=metadata.name%3D"+c.name("a")), nil)
			for _, query := range []string{
				"fieldSelector=metadata.name%3Dnone", "labelSelector=%3D", "limit=x", "continue=abc", "resourceVersion=x", "resourceVersionMatch=Exact",
				"resourceVersion=0&resourceVersionMatch=Exact", "sendInitialEvents=true", "resourceVersion=9999999", "resourceVersion=9999999&resourceVersionMatch=Exact",
			} {
				c.do("GET", c.all()+"?"+query, nil)
			}
		})
		ask("in pages", func(c *collection) {
			for _, name := range []string{"a", "b", "c"} {
				c.make(name)
			}
			first := c.do("GET", c.own("&limit=2"), nil)
			token := first.text("metadata", "continue")
			c.make("d")
			second := c.do("GET", c.own("&limit=2&continue="+url.QueryEscape(token)), nil, unshownQuery(token))
			c.say("the same version: %t", first.rv() == second.rv())
			c.do("GET", c.own("&limit=2&resourceVersion=1&continue="+url.QueryEscape(token)), nil, unshownQuery(token))
		})
		ask("at versions", func(c *collection) {
			c.make("a")
			list := c.do("GET", c.own(""), nil, quiet)
			c.make("b")
			c.setup("DELETE", c.one("a"), nil)
			c.do("GET", c.own("&resourceVersionMatch=Exact&resourceVersion="+list.rv()), nil, unshownQuery(list.rv()))
			c.do("GET", c.own("&resourceVersionMatch=NotOlderThan&resourceVersion="+list.rv()), nil, unshownQuery(list.rv()))
			c.do("GET", c.own("&resourceVersion=0"), nil)
		})
		ask("updated", func(c *collection) {
			a := c.make("a")
			put := func(version string, more ...any) *answer {
				return c.do("PUT", c.one("a"), c.object("a", append(more, "metadata.resourceVersion", version)...), hidden)
			}
			b := put(a.rv(), "spec.description", "one")
			again := put(b.rv(), "spec.description", "one")
			c.say("another version: %t, and then: %t", a.rv() != b.rv(), b.rv() != again.rv())
			put(a.rv(), "spec.description", "two")
			put(b.rv(), "metadata.uid", "other")
			put(b.rv(), "metadata.name", c.name("b"))
			put("abc")
			put(b.rv(), "spec.unknown", 1)
			c.do("PUT", c.one("none"), c.object("none", "metadata.resourceVersion", "5"))
			c.do("PUT", c.one("a")+"?dryRun=All", c.object("a", "metadata.resourceVersion", b.rv(), "spec.description", "three"), hidden)
			c.do("GET", c.one("a"), nil)
		})
		ask("patched", func(c *collection) {
			a := c.make("a")
			for _, patch := range []string{
				`{"spec":{"description":"one"}}`, `{"spec":{"description":"one"}}`, `{"spec":{"description":null}}`, `{"metadata":{"labels":{"l":"1"}}}`, `{"metadata":{"labels":{"l":null}}}`,
				`{"metadata":{"resourceVersion":"1"},"spec":{"description":"two"}}`, `{"metadata":{"name":"other"}}`, `{"spec":{"unknown":1}}`, `{}`, `[]`, `{`,
			} {
				c.do("PATCH", c.one("a"), patch, contentType(merge))
			}
			for _, patch := range []string{
				`[{"op":"add","path":"/spec/description","value":"one"}]`, `[{"op":"test","path":"/spec/description","value":"two"}]`, `[{"op":"remove","path":"/spec/none"}]`,
				`[{"op":"replace","path":"/spec/description","value":"two"},{"op":"test","path":"/spec/description","value":"two"}]`, `[]`, `{}`, `[{"op":"other","path":"/spec"}]`,
			} {
				c.do("PATCH", c.one("a"), patch, contentType(jsonPatch))
			}
			c.do("PATCH", c.one("none"), `{}`, contentType(merge))
			c.say("another version: %t", c.do("GET", c.one("a"), nil).rv() != a.rv())
		})
		ask("applied", func(c *collection) {
			by := func(query string, more ...any) {
				c.do("PATCH", c.one("a")+"?"+query, c.object("a", more...), contentType(apply))
			}
			by("fieldManager=me", "spec.description", "one")
			by("fieldManager=me", "spec.description", "one")
			by("fieldManager=you", "spec.description", "two")
			by("fieldManager=you&force=true", "spec.description", "two")
			by("fieldManager=me", "metadata.annotations", map[string]any{"n": "1"})
			by("fieldManager=you")
			by("", "spec.description", "three")
			by("fieldManager=me&dryRun=All", "spec.description", "three")
			by("fieldManager=me", "spec.unknown", 1)
			by("fieldManager=me", "metadata.resourceVersion", "1")
			c.do("GET", c.one("a"), nil)
		})
		ask("deleted", func(c *collection) {
			a := c.make("a")
			preconditions := func(field, value string) map[string]any {
				return map[string]any{"preconditions": map[string]any{field: value}}
			}
			c.do("DELETE", c.one("a")+"?dryRun=All", nil)
			c.do("DELETE", c.one("a"), preconditions("uid", "other"))
			c.do("DELETE", c.one("a"), preconditions("resourceVersion", "1"))
			c.do("DELETE", c.one("a")+"?propagationPolicy=Other", nil)
			c.do("DELETE", c.one("a"), preconditions("uid", a.uid()), hidden)
			c.do("DELETE", c.one("a"), nil)
			c.do("POST", c.all(), c.object("b", "metadata.finalizers", []any{"example.com/f"}))
			c.do("DELETE", c.one("b"), nil)
			c.do("DELETE", c.one("b"), nil)
			c.do("PATCH", c.one("b"), `{"metadata":{"finalizers":null}}`, contentType(merge))
			c.do("GET", c.one("b"), nil)
		})
		ask("deleted together", func(c *collection) {
			c.make("a")
			c.make("b")
			c.do("DELETE", c.own("&dryRun=All"), nil)
			c.do("DELETE", c.own("&fieldSelector=metadata.name%3D"+c.name("a")), nil)
			c.do("GET", c.own(""), nil)
			c.do("DELETE", c.own(""), nil)
			c.do("DELETE", c.own(""), nil)
		})
		for name, options := range map[string][]option{"": nil, " as metadata": {accept(asPartial)}} {
			ask("watched"+name, func(c *collection) {
				list := c.do("GET", c.own(""), nil, quiet)
				c.make("a")
				c.make("b")
				c.setup("PATCH", c.one("a"), `{"spec":{"description":"one"}}`, contentType(merge))
				c.setup("PATCH", c.one("a"), `{"metadata":{"labels":{"check":"other"}}}`, contentType(merge))
				c.setup("DELETE", c.one("b"), nil)
				c.watch(c.own("&watch=true&timeoutSeconds=20&resourceVersion="+list.rv()), nil, after(5), append(options, unshownQuery(list.rv()))...)
				c.watch(c.own("&watch=true&timeoutSeconds=20&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"), func() {
					c.setup("PATCH", c.one("a"), map[string]any{"metadata": map[string]any{"labels": c.labels()}}, contentType(merge))
				}, after(2), options...)
			})
		}
		ask("as who may not", func(c *collection) {
			c.make("a")
			c.do("GET", c.one("a"), nil, as("nobody"))
			c.do("GET", c.own(""), nil, as("nobody"))
			c.do("GET", c.own("&watch=true"), nil, as("nobody"))
			c.do("POST", c.all(), c.object("b"), as("nobody"))
			c.do("PATCH", c.one("a"), `{}`, contentType(merge), as("nobody"))
			c.do("DELETE", c.one("a"), nil, as("nobody"))
			c.do("DELETE", c.own(""), nil, as("nobody"))
		})
	}
}
