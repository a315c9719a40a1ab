package main

import (
	"encoding/base64"
	"net/url"
	"strings"
)

// Queries that nobody should send: parameters twice, unknown, misspelt, broken; and paths that are almost right.
func init() {
	add("queries", "a field manager with a control character", func(s *session) { s.do("POST", s.flunders()+"?fieldManager=%01", object("a")) })
	for _, query := range []string{
		"LIMIT=1", "Limit=1", "limit=1&limit=abc", "limit=abc&limit=1", "limit=1&limit=2&continue=", "%6Cimit=1", "limit=%31", "limit=1;continue=abc",
		"limit=1&;", "limit=1&&", "&", "=x", "limit", "limit=%zz", "a%zz=1&limit=1", "limit=+1", "limit=%2B1", "limit=%201", "limit=0x1", "limit=1e3", "limit=01",
		"labelSelector=app%3Dx&labelSelector=other", "labelSelector=&labelSelector=app%3Dx", "labelselector=app%3Dx", "labelSelector=%ff", "labelSelector=%00",
		"fieldSelector=metadata.name%3Da&fieldSelector=metadata.name%3Db", "fieldselector=metadata.name%3Da", "fieldSelector=%ff",
		"watch=0&watch=1", "Watch=1",
		"pretty=maybe", "pretty=true&pretty=false", "timeout=30s&timeout=abc", "resourceVersion=0&resourceVersion=abc", "resourceversion=abc",
		"dryRun=All", "fieldValidation=Strict", "includeObject=Other", "force=abc", "gracePeriodSeconds=abc", "propagationPolicy=Other", "name=a", "namespace=default",
		"shardSelector=x", "resourceVersionMatch=Exact&resourceVersionMatch=", "continue=abc&continue=", "timeoutSeconds=1&timeoutSeconds=x",
		strings.Repeat("a=b&", 2000) + "limit=1", "limit=1#fragment", "limit=1?limit=2", "?limit=1", "limit=9223372036854775807", "limit=-9223372036854775809",
	} {
		shown := query
		if len(shown) > 60 {
			shown = shown[:20] + "…" + shown[len(shown)-10:]
		}
		add("queries", "a list with "+shown, func(s *session) {
			s.three()
			s.do("GET", s.flunders()+"?"+query, nil)
		})
	}
	for _, query := range []string{
		"dryrun=All", "DRYRUN=All", "dryRun=all", "dryRun=true", "dryRun=All&dryRun=None", "dryRun=&dryRun=All", "dryRun",
		"fieldValidation=Strict&fieldValidation=Ignore", "fieldValidation=Ignore&fieldValidation=Strict", "fieldvalidation=Strict", "FieldValidation=Strict",
		"fieldManager=a&fieldManager=b", "fieldmanager=a", "force=true", "force=abc", "limit=abc", "watch=true", "labelSelector=a+b", "propagationPolicy=Other",
		"resourceVersion=abc", "pretty=true", "unknown=1&unknown=2", "dryRun=All;fieldValidation=Strict", "fieldManager=%zz", "timeout=1ns", "timeout=",
	} {
		add("queries", "a create with "+query, func(s *session) {
			s.full = true
			s.do("POST", s.flunders()+"?"+query, object("a", "spec.unknown", 1))
			s.do("GET", s.flunder("a"), nil, brief)
		})
		add("queries", "an update with "+query, func(s *session) {
			s.full = true
			a := s.create("a")
			s.do("PUT", s.flunder("a")+"?"+query, with(a.json, "spec.unknown", 1, "spec.reference", "y", "metadata.managedFields", nil), func(r *request) { r.unshownBody = true })
		})
		add("queries", "a patch with "+query, func(s *session) {
			s.full = true
			s.create("a")
			s.do("PATCH", s.flunder("a")+"?"+query, `{"spec":{"reference":"y","unknown":1}}`, contentType(merge))
		})
		add("queries", "a delete with "+query, func(s *session) {
			s.create("a")
			s.do("DELETE", s.flunder("a")+"?"+query, nil)
			s.do("GET", s.flunder("a"), nil, brief)
		})
	}

	for _, token := range []string{
		"null", "[]", `"x"`, "true", "5", "{}", `{"v":1}`, `{"v":"meta.k8s.io/v1","rv":"5"}`, `{"v":"meta.k8s.io/v1","rv":1.5}`, `{"v":null,"rv":null,"start":{}}`,
		`{"v":"meta.k8s.io/v1","rv":-1}`, `{"v":"meta.k8s.io/v1","rv":0,"start":"a"}`, `{"v":"meta.k8s.io/v1","rv":-1,"start":"/"}`,
		`{"v":"meta.k8s.io/v1","rv":-1,"start":"/a\u0000"}`, `{"v":"meta.k8s.io/v1","rv":-1,"start":"\u0000"}`, `{"v":"meta.k8s.io/v1","rv":-1,"start":"a/"}`,
		`{"v":"meta.k8s.io/v1","rv":-1,"start":"a//b"}`, `{"v":"meta.k8s.io/v1","rv":-1,"start":"../a"}`, `{"v":"meta.k8s.io/v1","rv":-1,"start":"./a"}`,
	} {
		add("queries", "a page after "+token, func(s *session) {
			s.three()
			s.do("GET", s.flunders()+"?continue="+base64.RawURLEncoding.EncodeToString([]byte(token)), nil)
		})
	}
	for _, token := range []string{"abc=", "ab==", "abcd=", "=", "a=bc"} {
		add("queries", "a page after "+token+", which is no base64", func(s *session) { s.do("GET", s.flunders()+"?continue="+url.QueryEscape(token), nil) })
	}

	// Paths that are almost those of a resource.
	paths := func(s *session) map[string]string {
		ns := root + "/namespaces/" + s.ns()
		return map[string]string{
			"a collection with a slash": ns + "/flunders/", "an object with a slash": ns + "/flunders/a/", "two slashes": ns + "/flunders//a",
			"a slash before the resource": ns + "//flunders", "capitals": ns + "/Flunders", "the singular": ns + "/flunder", "the kind": ns + "/Flunder/a",
			"a subresource with a slash": ns + "/flunders/a/status/", "a question mark": ns + "/flunders/a?", "an escaped letter": ns + "/flunders/%61",
			"an escaped resource": ns + "/%66lunders/a", "an escaped slash": ns + "/flunders%2Fa", "a dot": ns + "/flunders/./a", "two dots": ns + "/flunders/b/../a",
			"an empty namespace": root + "/namespaces//flunders/a", "a namespace in capitals": root + "/namespaces/UPPER/flunders/a", "a watch": root + "/watch/flunders/a",
			"a namespace that is too long": root + "/namespaces/" + strings.Repeat("x", 64) + "/flunders", "namespace, not namespaces": root + "/namespace/x/flunders",
			"a version in capitals": "/apis/wardle.example.com/V1alpha1/flunders", "a group in capitals": "/apis/WARDLE.example.com/v1alpha1/flunders",
			"api for apis": "/api/wardle.example.com/v1alpha1/flunders", "a path parameter": ns + "/flunders/a;x=y", "a plus": ns + "/flunders/a+b",
			"a broken escape": ns + "/flunders/a%25zz", "a semicolon": ns + "/flunders;x", "an exclamation mark": ns + "/flunders/a!",
		}
	}
	for _, name := range sortedKeys(paths(&session{bed: &bed{}, made: true})) {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
			if method == "DELETE" && strings.Contains(name, "collection") {
				continue
			}
			addDirect("almost paths", method+" with "+name, func(s *session) {
				s.create("a")
				var body any
				options := []option{}
				switch method {
				case "POST":
					body = object("b")
				case "PUT":
					body = object("a")
				case "PATCH":
					body, options = `{}`, []option{contentType(merge)}
				}
				s.do(method, paths(s)[name], body, options...)
			})
		}
	}
	addDirect("almost paths", "the collection of an empty namespace", func(s *session) {
		collection := root + "/namespaces//flunders"
		s.do("POST", collection, `{}`)
		s.do("POST", collection, object("a"))
		s.do("POST", collection, "x", contentType("text/plain"))
		s.do("PUT", collection, object("a"))
		s.do("DELETE", collection+"?labelSelector=none", nil)
	})
	for _, method := range []string{"HEAD", "OPTIONS", "PUT", "PATCH", "TRACE", "FROBNICATE", "get"} {
		add("methods", method+" a namespace's collection", func(s *session) {
			s.create("a")
			s.do(method, s.flunders(), nil)
		})
		add("methods", method+" an object that is not there", func(s *session) { s.do(method, s.flunder("none"), nil) })
		add("methods", method+" a subresource that there is not", func(s *session) {
			s.create("a")
			s.do(method, s.flunder("a")+"/scale", nil)
			s.do(method, s.flunder("a")+"/status", nil)
			s.do(method, s.flunder("a")+"/status/x", nil)
		})
	}
	addDirect("methods", "HEAD in other forms", func(s *session) {
		s.create("a")
		for _, form := range []string{asTable, asPartial, "application/yaml", "text/html"} {
			s.do("HEAD", s.flunder("a"), nil, accept(form))
		}
	})

	// Time.
	for _, timeout := range []string{"1s", "1500ms", "2s&timeout=1ms"} {
		addDirect("time", "a read that takes longer than "+timeout, func(s *session) {
			s.create("a")
			s.do("GET", s.flunder("a")+"?resourceVersion=9999999&timeout="+timeout, nil)
			s.do("GET", s.flunders()+"?resourceVersion=9999999&timeout="+timeout, nil)
		})
	}
	for _, query := range []string{"watch=2", "watch=%31", "watch=1&watch=0"} {
		add("queries", "a watch with "+query, func(s *session) {
			s.create("a")
			s.watch(s.flunders()+"?timeoutSeconds=1&"+query, nil, nil)
		})
	}
	add("time", "a watch is not ended by timeout", func(s *session) {
		s.create("a")
		s.watch(s.flunders()+"?watch=true&timeout=1ms&timeoutSeconds=1", nil, nil)
	})
	add("time", "a list with a timeout in seconds", func(s *session) {
		s.create("a")
		s.do("GET", s.flunders()+"?timeoutSeconds=1&timeout=30s", nil)
	})
}
