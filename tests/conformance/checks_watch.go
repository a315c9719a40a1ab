package main

import (
	"strings"
	"time"
)

// Watches.
func init() {
	history := func(s *session) string {
		list := s.do("GET", s.flunders(), nil, quiet)
		s.create("a", "metadata.labels", map[string]any{"app": "x"})
		a := s.create("b")
		s.setup("PUT", s.flunder("b"), with(a.json, "metadata.labels", map[string]any{"app": "x"}))
		s.setup("PATCH", s.flunder("a"), `{"metadata":{"labels":{"app":"y"}}}`, contentType("application/merge-patch+json"))
		s.setup("DELETE", s.flunder("b"), nil)
		return list.rv()
	}
	from := func(name, query string, count int, options ...option) {
		add("watch", name, func(s *session) {
			rv := history(s)
			options := append(options, unshownQuery(rv))
			s.watch(s.flunders()+"?watch=true&timeoutSeconds=20&resourceVersion="+rv+query, nil, after(count), options...)
		})
	}
	from("from a version", "", 5)
	from("of a label", "&labelSelector=app%3Dx", 4)
	from("of no label", "&labelSelector=%21app", 2)
	from("of a name", "&fieldSelector=metadata.name%3Da", 2)
	from("as a table", "", 5, accept(asTable))
	from("as a table without objects", "&includeObject=None", 5, accept(asTable))
	from("as a table of objects", "&includeObject=Object", 5, accept(asTable))
	from("as metadata", "", 5, accept(asPartial))
	from("as metadata lists", "", 5, accept(asPartialList))

	begin := func(name, query string, count int, options ...option) {
		add("watch", name, func(s *session) {
			s.three()
			s.watch(s.flunders()+"?watch=true&timeoutSeconds=2"+query, func() {
				s.create("d")
				s.setup("DELETE", s.flunder("a"), nil)
			}, after(count), options...)
		})
	}
	begin("from what is there", "", 5)
	begin("from any version", "&resourceVersion=0", 5)
	begin("of a selection from what is there", "&labelSelector=app%3Dx", 3)
	begin("to its end", "&timeoutSeconds=1&resourceVersion=0", 100)
	begin("initial events", "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", 6)
	begin("initial events without bookmarks", "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", 5)
	begin("initial events as a table", "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", 6, accept(asTable))
	begin("initial events as a table without objects", "&includeObject=None&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", 6, accept(asTable))
	begin("initial events as metadata", "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", 6, accept(asPartial))
	begin("initial events of a selection", "&labelSelector=app%3Dx&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", 4)
	begin("initial events of any version", "&resourceVersion=0&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", 6)
	begin("no initial events", "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", 2)
	add("watch", "initial events of nothing", func(s *session) {
		s.watch(s.flunders()+"?watch=1&timeoutSeconds=2&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", nil, after(1))
	})

	for _, query := range []string{
		"resourceVersion=abc", "resourceVersion=-1", "resourceVersionMatch=Exact", "resourceVersionMatch=NotOlderThan", "resourceVersionMatch=Other",
		"sendInitialEvents=true", "sendInitialEvents=false", "sendInitialEvents=true&resourceVersionMatch=Exact",
		"sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=abc", "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&limit=1",
		"sendInitialEvents=true&resourceVersionMatch=NotOlderThan&continue=abc", "limit=1", "continue=abc", "labelSelector=a+b", "fieldSelector=spec.x%3Dy",
		"fieldSelector=metadata.name", "timeoutSeconds=abc", "timeoutSeconds=1.5", "allowWatchBookmarks=abc&resourceVersion=0", "includeObject=Other",
		"resourceVersion=0&resourceVersionMatch=Exact", "resourceVersion=1&resourceVersionMatch=NotOlderThan", "resourceVersion=99999999&timeoutSeconds=1",
		"sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=99999999&timeoutSeconds=5",
	} {
		add("watch options", query, func(s *session) {
			s.ns()
			if !strings.Contains(query, "timeoutSeconds") {
				query = "timeoutSeconds=1&" + query
			}
			s.watch(s.flunders()+"?watch=true&"+query, nil, nil)
		})
	}
	for _, value := range []string{"1", "true", "TRUE", "yes", "", "0", "false", "no", "F"} {
		add("watch options", "watch="+value, func(s *session) {
			s.create("a")
			s.watch(s.flunders()+"?timeoutSeconds=1&watch="+value, nil, nil)
		})
	}
	for _, form := range []struct{ name, accept string }{
		{"YAML", "application/yaml"}, {"HTML", "text/html"}, {"a stream", "application/json;stream=watch"}, {"anything", "*/*"}, {"CBOR", "application/cbor-seq"},
		{"JSON or YAML", "application/yaml,application/json"}, {"protobuf or JSON", "application/vnd.kubernetes.other,application/json"},
	} {
		add("watch", "in "+form.name, func(s *session) {
			s.create("a")
			s.watch(s.flunders()+"?timeoutSeconds=1&watch=1", nil, nil, accept(form.accept))
		})
	}
	add("watch", "of an object by its path", func(s *session) {
		s.create("a")
		s.watch(s.flunder("a")+"?watch=true&timeoutSeconds=1", nil, nil)
	})
	add("watch", "by the verb in the path", func(s *session) {
		s.create("a")
		s.create("b")
		watched := root + "/watch/namespaces/" + s.ns() + "/flunders"
		s.watch(watched+"?timeoutSeconds=1", nil, nil)
		s.watch(watched+"/a?timeoutSeconds=1", nil, nil)
		s.watch(watched+"/none?timeoutSeconds=1", nil, nil)
		s.do("GET", root+"/watch/fischers/"+s.name("none")+"?timeoutSeconds=1", nil)
		s.do("DELETE", watched+"/a", nil)
		s.do("POST", watched, object("x"))
		s.do("GET", root+"/watch/others", nil)
	})
	add("watch", "of one name by a field selector", func(s *session) {
		s.three()
		s.watch(s.flunders()+"?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Da", nil, nil)
	})
	add("watch", "a bookmark before its end", func(s *session) {
		s.three()
		began := time.Now()
		s.watch(s.flunders()+"?watch=true&timeoutSeconds=4&allowWatchBookmarks=true&resourceVersion=0", nil, nil)
		s.say("after four seconds: %t", time.Since(began) > 3900*time.Millisecond && time.Since(began) < 6*time.Second)
		s.say("bookmarks: %t", s.bookmarks > 0)
	})
	add("watch", "finalizers and deletion", func(s *session) {
		list := s.do("GET", s.flunders(), nil, quiet)
		s.create("a", "metadata.finalizers", []string{"example.com/x"})
		s.setup("DELETE", s.flunder("a"), nil)
		s.setup("PATCH", s.flunder("a"), `{"metadata":{"finalizers":null}}`, contentType("application/merge-patch+json"))
		events := s.watch(s.flunders()+"?watch=true&timeoutSeconds=5&resourceVersion="+list.rv(), nil, after(4), unshownQuery(list.rv()))
		if len(events) > 1 {
			last, before := events[len(events)-1], events[len(events)-2]
			s.say("the deletion has a version of its own: %t", version(last) > version(before))
		}
	})
	add("watch", "without compression", func(s *session) {
		s.create("a")
		s.watch(s.flunders()+"?watch=true&timeoutSeconds=1", nil, nil, header("Accept-Encoding", "gzip"))
	})
	add("watch", "over HTTP/1.1", func(s *session) {
		s.create("a")
		s.watch(s.flunders()+"?watch=true&timeoutSeconds=1", nil, nil, http1)
	})
	add("watch", "of everything, cluster-wide", func(s *session) {
		s.ns()
		label := "%3D" + s.name("l")
		s.watch(root+"/flunders?watch=true&timeoutSeconds=2&labelSelector=mark"+label, func() {
			s.create("a", "metadata.labels", map[string]any{"mark": s.name("l")})
		}, after(1))
	})
}

func version(e event) string {
	metadata, _ := e.object["metadata"].(map[string]any)
	rv, _ := metadata["resourceVersion"].(string)
	return strings.Repeat("0", 20-len(rv)) + rv
}
