package main

import (
	"fmt"
	"net/url"
	"strings"
)

const (
	asTable       = "application/json;as=Table;v=v1;g=meta.k8s.io"
	asPartial     = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	asPartialList = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
)

// three makes the flunders a, b and c, of which a and b share a label.
func (s *session) three() {
	s.create("a", "metadata.labels", map[string]any{"app": "x", "tier": "1"}, "spec.reference", "one")
	s.create("b", "metadata.labels", map[string]any{"app": "x", "tier": "2"}, "metadata.annotations", map[string]any{"note": "hello"})
	s.create("c", "metadata.labels", map[string]any{"other": "y"})
	// A consistent read, after which a read of whatever is at hand shows all three.
	s.do("GET", s.flunders(), nil, quiet)
}

// Gets, lists, pages, selectors, and the forms of answers.
func init() {
	one := func(area, name, query string, options ...option) {
		add(area, name, func(s *session) {
			s.three()
			s.do("GET", s.flunder("a")+query, nil, options...)
		})
	}
	many := func(area, name, query string, options ...option) {
		add(area, name, func(s *session) {
			s.three()
			s.do("GET", s.flunders()+query, nil, options...)
		})
	}
	one("get", "an object", "")
	one("get", "at any version", "?resourceVersion=0")
	one("get", "at least at version 1", "?resourceVersion=1")
	one("get", "at a version that is none", "?resourceVersion=abc")
	one("get", "at a negative version", "?resourceVersion=-1")
	one("get", "with a match that gets do not have", "?resourceVersionMatch=Exact")
	one("get", "of an unknown parameter", "?unknown=1")
	one("get", "with export, which is gone", "?export=true")
	one("get", "pretty", "?pretty=true")
	add("get", "pretty is indented", func(s *session) {
		s.create("a")
		for _, query := range []string{"?pretty=true", "?pretty=1", "?pretty=0", "?pretty", "?pretty=false", ""} {
			a := s.do("GET", s.flunder("a")+query, nil, quiet)
			s.say("%s: %t, line at the end %t", query, strings.Contains(string(a.body), "\n  \""), strings.HasSuffix(string(a.body), "\n"))
		}
		for _, agent := range []string{"curl/8", "Wget/1", "Mozilla/5.0 x", "kubectl/v1"} {
			a := s.do("GET", s.flunder("a"), nil, quiet, header("User-Agent", agent))
			s.say("%s: %t", agent, strings.Contains(string(a.body), "\n  \""))
			a = s.do("GET", s.flunder("none"), nil, quiet, header("User-Agent", agent))
			s.say("%s: %t", agent, strings.Contains(string(a.body), "\n  \""))
		}
	})
	add("get", "an object that is not there", func(s *session) { s.do("GET", s.flunder("none"), nil) })
	add("get", "an object in a namespace that is not there", func(s *session) {
		s.do("GET", root+"/namespaces/none-such/flunders/a", nil)
		s.do("GET", root+"/namespaces/none-such/flunders", nil)
	})
	add("get", "names that no object can have", func(s *session) {
		for _, name := range []string{"UPPER", "a_b", "%20", "%25", ".", "..", "a%0Ab", "%C3%BC", strings.Repeat("x", 300), "%22"} {
			s.do("GET", s.flunder(name), nil)
		}
	})
	add("get", "a version ahead", func(s *session) {
		s.create("a")
		s.do("GET", s.flunder("a")+"?resourceVersion=9999999", nil)
	})
	add("list", "a version ahead", func(s *session) {
		s.ns()
		s.do("GET", s.flunders()+"?resourceVersion=9999999", nil)
	})
	add("list", "exactly a version ahead", func(s *session) {
		s.ns()
		s.do("GET", s.flunders()+"?resourceVersion=9999999&resourceVersionMatch=Exact", nil)
	})
	add("list", "a page of a version ahead", func(s *session) {
		s.ns()
		s.do("GET", s.flunders()+"?resourceVersion=9999999&limit=2", nil)
	})

	many("list", "all of a namespace", "")
	many("list", "at any version", "?resourceVersion=0")
	many("list", "at least at version 1", "?resourceVersion=1")
	for _, query := range []string{
		"resourceVersion=abc", "resourceVersion=-1", "resourceVersion=1.5", "resourceVersionMatch=Exact", "resourceVersionMatch=NotOlderThan",
		"resourceVersionMatch=Other", "resourceVersion=1&resourceVersionMatch=Other", "resourceVersion=0&resourceVersionMatch=Exact",
		"resourceVersion=0&resourceVersionMatch=NotOlderThan", "resourceVersion=1&resourceVersionMatch=NotOlderThan",
		"resourceVersion=0&resourceVersionMatch=", "limit=abc", "limit=-1", "limit=0", "limit=1.5", "limit=", "limit=99999999999999999999",
		"continue=abc", "continue=", "continue=%00", "continue=e30", "continue=abc&resourceVersion=1", "continue=abc&resourceVersion=0",
		"continue=abc&resourceVersionMatch=Exact", "sendInitialEvents=true", "sendInitialEvents=false", "sendInitialEvents=abc", "timeoutSeconds=abc",
		"timeoutSeconds=5", "timeoutSeconds=-5", "watch=0", "watch=false", "allowWatchBookmarks=abc", "allowWatchBookmarks=true", "unknown=1",
		"sendInitialEvents=true&resourceVersionMatch=NotOlderThan", "resourceVersionMatch=Exact&limit=1", "resourceVersion=1&resourceVersion=abc",
		"continue=bad", "resourceVersion=%2B5", "resourceVersion=18446744073709551616", "resourceVersion=99999999999999999999&resourceVersionMatch=Exact",
	} {
		many("list options", query, "?"+query)
	}
	many("list options", "two limits", "?limit=1&limit=2")
	many("list", "a page of 0", "?limit=0")
	add("list", "pages", func(s *session) {
		s.three()
		first := s.do("GET", s.flunders()+"?limit=2", nil)
		token := first.text("metadata", "continue")
		s.create("d")
		second := s.do("GET", s.flunders()+"?limit=2&continue="+url.QueryEscape(token), nil, unshownQuery(token))
		s.say("the same version: %t", first.rv() == second.rv())
		s.do("GET", s.flunders()+"?limit=2&resourceVersion=1&continue="+url.QueryEscape(token), nil, unshownQuery(token))
		s.do("GET", s.flunders()+"?limit=2&resourceVersion=0&continue="+url.QueryEscape(token), nil, unshownQuery(token))
		s.do("GET", s.flunders()+"?limit=2&resourceVersionMatch=Exact&continue="+url.QueryEscape(token), nil, unshownQuery(token))
	})
	add("list", "pages at any version", func(s *session) {
		s.three()
		s.do("GET", s.flunders()+"?limit=2&resourceVersion=0", nil)
		s.do("GET", s.flunders()+"?limit=2&resourceVersion=0&resourceVersionMatch=NotOlderThan", nil)
	})
	add("list", "pages of a selection", func(s *session) {
		s.three()
		first := s.do("GET", s.flunders()+"?limit=1&labelSelector=app%3Dx", nil)
		token := first.text("metadata", "continue")
		s.do("GET", s.flunders()+"?limit=1&labelSelector=app%3Dx&continue="+url.QueryEscape(token), nil, unshownQuery(token))
	})
	add("list", "a page of another list's token", func(s *session) {
		s.three()
		first := s.do("GET", s.flunders()+"?limit=2", nil, brief)
		token := first.text("metadata", "continue")
		s.do("GET", root+"/namespaces/default/flunders?limit=2&continue="+url.QueryEscape(token), nil, unshownQuery(token))
	})
	add("list", "an exact version of the past", func(s *session) {
		s.create("a")
		list := s.do("GET", s.flunders(), nil, quiet)
		s.create("b")
		s.setup("DELETE", s.flunder("a"), nil)
		s.do("GET", s.flunders()+"?resourceVersionMatch=Exact&resourceVersion="+list.rv(), nil, unshownQuery(list.rv()))
		s.do("GET", s.flunders()+"?resourceVersionMatch=Exact&limit=1&resourceVersion="+list.rv(), nil, unshownQuery(list.rv()))
		again := s.do("GET", s.flunders()+"?resourceVersionMatch=NotOlderThan&resourceVersion="+list.rv(), nil, unshownQuery(list.rv()))
		s.say("%t", again.rv() != list.rv())
		s.do("GET", s.flunders()+"?limit=1&resourceVersion="+list.rv(), nil, unshownQuery(list.rv()))
	})
	add("list", "what was just written", func(s *session) {
		for i := range 5 {
			s.create(fmt.Sprintf("n%d", i))
			list := s.do("GET", s.flunders(), nil, quiet)
			items, _ := list.at("items").([]any)
			s.say("%d", len(items))
		}
	})
	add("list", "in order of bytes", func(s *session) {
		for _, name := range []string{"b", "a.b", "a-b", "a0", "a", "z", "0", "ab"} {
			s.create(name)
		}
		list := s.do("GET", s.flunders(), nil, quiet)
		items, _ := list.at("items").([]any)
		for _, item := range items {
			object, _ := item.(map[string]any)
			metadata, _ := object["metadata"].(map[string]any)
			s.say("%v", metadata["name"])
		}
	})

	// Selectors.
	for _, selector := range []string{
		"app=x", "app==x", "app!=x", "app", "!app", "app in (x,y)", "app notin (x)", "app in ()", "app=x,tier=2", "app=x,!tier", "tier>1", "tier<2",
		"tier>a", "app=", "app in (x", "app in x", "=x", "app=x=y", "app x", "-bad", "bad-", "app=-bad", "a/b/c", "app=x,", ",app=x", "app in (x,)",
		"app notin ()", "!", "app exists", "app===x", "example.com/app=x", "UPPER=x", " app = x ", "app in (x, y )", "tier>1,tier<3", "(app)", "app>",
		"app>1.5", "app in (x,(y))", "app in ((", "app in (x,", "app in (-x, b c)", "app in (-y,-x)", "tier>-a", strings.Repeat("a", 64), "app=" + strings.Repeat("a", 64), "äpp=x", "app=ä",
	} {
		many("label selectors", selector, "?labelSelector="+url.QueryEscape(selector))
	}
	for _, selector := range []string{
		"metadata.name=a", "metadata.name==a", "metadata.name!=a", "metadata.name=none", "metadata.namespace=default", "metadata.namespace!=default",
		"spec.reference=one", "metadata.labels=x", "metadata.name", "metadata.name=", "=a", "metadata.name=a,metadata.name=b", "metadata.name=a,",
		`metadata.name=a\,b`, `metadata.name=a\b`, "metadata.name in (a)", "status.phase=x", "metadata.uid=1", "name=a", "metadata.name=a=b", ",",
		"=", "==", "!=", "=,metadata.name=a", "!=,status.phase=x", "!=a",
		"spec.x=1,foo", "foo,spec.x=1", "spec.z=1,spec.a=1", "spec.a=a=b,foo",
	} {
		many("field selectors", selector, "?fieldSelector="+url.QueryEscape(selector))
	}
	add("field selectors", "of fischers", func(s *session) {
		s.setup("POST", fischers, fischer(s.name("f")))
		s.do("GET", fischers+"?fieldSelector=metadata.name%3D"+s.name("f"), nil)
		s.do("GET", fischers+"?fieldSelector=metadata.namespace%3Dx", nil)
		s.do("GET", fischers+"?fieldSelector=metadata.namespace%3D,metadata.name%3D"+s.name("f"), nil)
	})

	// Forms.
	for _, form := range []struct{ name, accept string }{
		{"anything", "*/*"}, {"application/*", "application/*"}, {"YAML", "application/yaml"}, {"HTML", "text/html"}, {"CBOR", "application/cbor"},
		{"plain text", "text/plain"}, {"JSON in UTF-8", "application/json; charset=utf-8"}, {"JSON by quality", "application/yaml;q=0.1,application/json"},
		{"YAML by quality", "application/yaml,application/json;q=0.1"}, {"JSON of quality 0", "application/json;q=0"}, {"malformed", "application"},
		{"malformed too", ";;"}, {"JSON after HTML", "text/html,application/json"}, {"JSON in capitals", "APPLICATION/JSON"},
		{"a table", asTable}, {"an old table", "application/json;as=Table;v=v1beta1;g=meta.k8s.io"}, {"a table of no group", "application/json;as=Table;v=v1"},
		{"a table of no version", "application/json;as=Table;g=meta.k8s.io"}, {"a table of another group", "application/json;as=Table;v=v1;g=other"},
		{"a table of an unknown version", "application/json;as=Table;v=v2;g=meta.k8s.io"}, {"an unknown form", "application/json;as=Other;v=v1;g=meta.k8s.io"},
		{"a table or JSON", "application/json;as=Table;v=v9;g=meta.k8s.io,application/json"}, {"a table in YAML", "application/yaml;as=Table;v=v1;g=meta.k8s.io"},
		{"metadata", asPartial}, {"metadata list", asPartialList}, {"old metadata", "application/json;as=PartialObjectMetadata;v=v1beta1;g=meta.k8s.io"},
		{"metadata in YAML", "application/yaml;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}, {"a watch", "application/json;stream=watch"},
		{"no version", "application/json;v="}, {"nothing", "application/json;as=;g=;v="}, {"a blank", "application/json;as= ;v="}, {"a blank at the end", "application/json;as= ,text/html"},
		{"anything or metadata", "*/*," + asPartial + ";q=0.1"}, {"anything of JSON's or a list of metadata", "application/*," + asPartialList + ";q=0.9"},
		{"two kinds", "application/json;as=Other;as=Table;v=v1;g=meta.k8s.io"},
		{"an unknown stream", "application/json;stream=other"}, {"pretty JSON", "application/json;pretty=1"}, {"an unknown parameter", "application/json;x=y"},
	} {
		one("forms of an object", form.name, "", accept(form.accept))
		many("forms of a list", form.name, "", accept(form.accept))
	}
	for _, include := range []string{"None", "Metadata", "Object", "", "none", "Other"} {
		one("forms of an object", "a table including "+include, "?includeObject="+include, accept(asTable))
		many("forms of a list", "a table including "+include, "?includeObject="+include, accept(asTable))
	}
	many("forms of a list", "a page of a table", "?limit=2", accept(asTable))
	many("forms of a list", "a page of metadata", "?limit=2", accept(asPartialList))
	add("forms of a list", "an empty table", func(s *session) {
		s.do("GET", s.flunders(), nil, accept(asTable))
		s.do("GET", s.flunders(), nil, accept(asPartialList))
		s.do("GET", s.flunders(), nil)
	})
	add("forms of a list", "compressed when it is long", func(s *session) {
		for i := range 3 {
			s.create(fmt.Sprintf("n%d", i), "metadata.annotations", map[string]any{"x": strings.Repeat("a", 60_000)})
		}
		s.do("GET", s.flunders(), nil, header("Accept-Encoding", "gzip"), brief)
		a := s.do("GET", s.flunders(), nil, header("Accept-Encoding", "gzip"), quiet)
		s.say("%s", headers(a.header))
		a = s.do("GET", s.flunders()+"?limit=1", nil, header("Accept-Encoding", "gzip"), quiet)
		s.say("%s", headers(a.header))
		a = s.do("GET", s.flunders(), nil, header("Accept-Encoding", "deflate"), quiet)
		s.say("%s", headers(a.header))
		a = s.do("GET", s.flunders(), nil, header("Accept-Encoding", "gzip;q=0"), quiet)
		s.say("%s", headers(a.header))
	})
	add("forms of errors", "as a client accepts them", func(s *session) {
		for _, form := range []string{"application/yaml", "text/html", asTable, asPartial, asPartialList, "application/cbor", "*/*", ""} {
			s.do("GET", s.flunder("none"), nil, accept(form))
		}
	})
}

// unshownQuery leaves a token or version out of the transcript.
func unshownQuery(token string) option {
	return func(r *request) { r.masked = append(r.masked, url.QueryEscape(token)) }
}
