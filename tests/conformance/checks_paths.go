package main

import "net/http"

// Paths, methods and documents about the API.
func init() {
	get := func(area, name, path string, options ...option) {
		addDirect(area, name, func(s *session) { s.do("GET", path, nil, options...) })
	}
	for _, path := range []string{
		"/api", "/api/", "/api/v1", "/api/v2", "/apis/wardle.example.com", "/apis/wardle.example.com/", "/apis/wardle.example.com//",
		"/apis/wardle.example.com/v1alpha1", "/apis/wardle.example.com/v1alpha1/", "/apis/wardle.example.com/v1alpha1///", "/apis/wardle.example.com/v9", "/apis/other.example.com",
		"/apis/other.example.com/v1", "/apis/wardle.example.com/v9/flunders", "/apis/wardle.example.com/v1alpha1/others",
		"/apis/wardle.example.com/v1alpha1/namespaces/default/others", "/apis/wardle.example.com/v1alpha1/namespaces/default",
		"/apis/wardle.example.com/v1alpha1/namespaces", "/unknown", "/unknown/", "/favicon.ico", "/apis/wardle.example.com/v1alpha1/watch",
		"/apis/wardle.example.com/v1alpha1/flunders/name", "/apis/wardle.example.com/v1alpha1/fischers/name/status",
		"/apis/wardle.example.com/v1alpha1/fischers/name/other", "/apis/wardle.example.com/v1alpha1/fischers/name/a/b",
		"/apis/wardle.example.com/v1alpha1/namespaces/default/fischers", "/apis/wardle.example.com/v1alpha1/namespaces/default/flunders/a/b",
		"/apis/wardle.example.com/v1alpha1//flunders", "//apis",
		"/apis/wardle.example.com/v1alpha1/proxy/namespaces/default/flunders/a", "/%61pis/wardle.example.com/v1alpha1/fischers/none",
		"/apis/wardle.example.com/v1alpha1/fischers/a%2Fb", "/apis/wardle.example.com/v1alpha1/fischers/%00", "/apis/./wardle.example.com",
		"/apis/wardle.example.com/v1alpha1/fischers/..",
		"/%61pis/wardle.example.com", "/apis/wardle%2Eexample.com", "/apis/wardle%2Eexample.com/v1alpha1", "/apis/wardle.example.com%2Fv1alpha1",
	} {
		get("paths", path, path)
	}
	for _, method := range []string{"HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "FROBNICATE"} {
		for _, path := range []string{
			"/apis/wardle.example.com", "/apis/wardle.example.com/v1alpha1", "/version", "/healthz", "/unknown", "/openapi/v2",
			"/openapi/v3", "/metrics", "/apis", fischers,
		} {
			// A collection is emptied elsewhere, and metrics would be, under the feet of other checks.
			if path == fischers && (method == "DELETE" || method == "POST") || path == "/metrics" && method == "DELETE" {
				continue
			}
			addDirect("methods", method+" "+path, func(s *session) {
				s.do(method, path, nil, headOnSuccess)
			})
		}
		if method == "POST" || method == "DELETE" || method == "PATCH" || method == "PUT" {
			continue
		}
		addDirect("methods", method+" an object", func(s *session) {
			s.create("a")
			s.do(method, s.flunder("a"), nil)
		})
	}
	add("methods", "POST to an object", func(s *session) { s.do("POST", s.flunder("a"), object("a")) })
	add("methods", "PUT to a collection", func(s *session) { s.do("PUT", s.flunders(), object("a")) })
	add("methods", "PATCH a collection", func(s *session) {
		s.do("PATCH", s.flunders(), `{}`, contentType("application/merge-patch+json"))
	})
	add("methods", "POST to all namespaces", func(s *session) { s.do("POST", root+"/flunders", object("a")) })
	add("methods", "DELETE in all namespaces", func(s *session) { s.do("DELETE", root+"/flunders", nil) })
	add("methods", "status is no subresource here", func(s *session) {
		s.create("a")
		s.do("GET", s.flunder("a")+"/status", nil)
		s.do("PUT", s.flunder("a")+"/status", object("a"))
		s.do("GET", s.flunder("a")+"/scale", nil)
	})

	// Legacy and aggregated discovery.
	const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	const beta = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
	for _, form := range []struct{ name, accept string }{
		{"aggregated", aggregated},
		{"aggregated and in YAML", "application/yaml;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"},
		{"of a version that is gone", beta},
		{"the beta or the aggregated", beta + "," + aggregated},
		{"as client-go asks", aggregated + "," + beta + ",application/json"},
		{"of an unknown version", "application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList"},
		{"of an unknown version or plain", "application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList,application/json"},
		{"plain or aggregated", "application/json," + aggregated},
		{"rather plain than aggregated", "application/json;q=0.9," + aggregated + ";q=0.1"},
		{"in YAML or aggregated", "application/yaml," + aggregated},
		{"in protobuf", "application/vnd.kubernetes.protobuf"},
		{"in YAML", "application/yaml"},
		{"in HTML", "text/html"},
		{"in anything", "*/*"},
		{"as a table", "application/json;as=Table;g=meta.k8s.io;v=v1"},
	} {
		for _, path := range []string{"/api", "/apis", "/apis/wardle.example.com", "/apis/wardle.example.com/v1alpha1"} {
			get("discovery", path+" "+form.name, path, accept(form.accept))
		}
	}
	for _, path := range []string{"/apis", "/apis/wardle.example.com", "/apis/wardle.example.com/v1alpha1", "/version"} {
		for _, sent := range []string{
			"text/plain", "application/yaml", "application/vnd.kubernetes.protobuf", "application/*", "Application/JSON", "application/json; charset=utf-8", "text/plain, application/json",
		} {
			addDirect("discovery", path+" to one who sends "+sent, func(s *session) { s.do("GET", path, nil, contentType(sent), briefOnSuccess) })
		}
	}
	for _, wanted := range []string{"application/yaml", "application/*", "text/html", "text/html, */*", "application/json;as=Table"} {
		addDirect("server", "/version as "+wanted, func(s *session) { s.do("GET", "/version", nil, accept(wanted), briefOnSuccess) })
	}
	addDirect("discovery", "the aggregated document by its tag", func(s *session) {
		tag := s.do("GET", "/apis", nil, accept(aggregated), brief).header.Get("Etag")
		s.do("GET", "/apis", nil, accept(aggregated), header("If-None-Match", tag), withoutTag)
		for _, named := range []string{`"other"`, "W/" + tag, `"other", ` + tag, "*"} {
			s.do("GET", "/apis", nil, accept(aggregated), header("If-None-Match", named), withoutTag, brief)
		}
	})

	// OpenAPI.
	for _, form := range []struct{ name, accept string }{
		{"as JSON", "application/json"},
		{"in anything", "*/*"},
		{"in protobuf", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"},
		{"in protobuf v3", "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"},
		{"in YAML", "application/yaml"},
		{"in HTML", "text/html"},
	} {
		for _, path := range []string{"/openapi/v2", "/openapi/v3", "/openapi/v3/apis/wardle.example.com/v1alpha1", "/openapi/v3/unknown"} {
			addDirect("openapi", path+" "+form.name, func(s *session) { s.document(path, accept(form.accept)) })
		}
	}
	for _, path := range []string{"/openapi%2Fv2", "/openapi/v%33", "/%6Fpenapi/v3/apis/wardle%2Eexample.com/v1alpha1"} {
		addDirect("openapi", path+", escaped", func(s *session) { s.document(path) })
	}
	addDirect("openapi", "v3 by its hash, and a wrong one", func(s *session) {
		index := s.do("GET", "/openapi/v3", nil, quiet)
		url, _ := index.at("paths", "apis/wardle.example.com/v1alpha1", "serverRelativeURL").(string)
		first := s.document(url)
		s.document("/openapi/v3/apis/wardle.example.com/v1alpha1?hash=0")
		s.do("GET", url, nil, header("If-None-Match", first.header.Get("Etag")), withoutTag)
	})
	addDirect("openapi", "v2 by its tag", func(s *session) {
		first := s.document("/openapi/v2")
		s.do("GET", "/openapi/v2", nil, header("If-None-Match", first.header.Get("Etag")), withoutTag)
	})
	for _, path := range []string{"/openapi/v2", "/openapi/v3", "/openapi/v3/apis/wardle.example.com/v1alpha1"} {
		for _, condition := range [][2]string{
			{"If-None-Match", "*"}, {"If-Match", "*"}, {"If-Match", `"other"`}, {"If-Modified-Since", "Tue, 01 Jan 2030 00:00:00 GMT"},
			{"If-Modified-Since", "Thu, 01 Jan 1998 00:00:00 GMT"}, {"If-Unmodified-Since", "Thu, 01 Jan 1998 00:00:00 GMT"},
			{"Range", "bytes=0-10"}, {"Range", "bytes=-5"}, {"Range", "bytes=5-2"}, {"Range", "lines=1-2"},
		} {
			addDirect("openapi", path+" with "+condition[0]+": "+condition[1], func(s *session) {
				s.do("GET", path, nil, header(condition[0], condition[1]), briefOnSuccess)
				s.do("POST", path, nil, header(condition[0], condition[1]), briefOnSuccess)
			})
		}
	}

	// The server itself.
	for _, path := range []string{
		"/healthz", "/livez", "/readyz", "/healthz/ping", "/livez/ping", "/readyz/ping", "/livez/unknown", "/livez?exclude=ping",
		"/livez?exclude=unknown", "/readyz/shutdown", "/livez/", "/version", "/version/", "/version//", "/version/x",
		"/debug/pprof", "/debug/pprof/cmdline", "/debug/pprof/nothing", "/debug/pprof/nothing/more",
	} {
		addDirect("server", path, func(s *session) { s.server(path) })
	}
	for _, path := range []string{"/livez?verbose", "/readyz?verbose", "/healthz?verbose", "/healthz?verbose&exclude=ping"} {
		addDirect("server", path, func(s *session) { s.verbose(path) })
	}
	for _, identity := range []string{"", "nobody", "stranger"} {
		for _, path := range []string{"/healthz", "/livez", "/readyz", "/livez/ping", "/version", "/metrics", "/openapi/v2", "/apis", "/", "/unknown", "/debug/pprof/"} {
			addDirect("server", path+" as "+quoted(identity), func(s *session) { s.do("GET", path, nil, as(identity), briefOnSuccess) })
		}
	}
	for _, wanted := range []string{
		"text/plain", "text/*", "*/*", "application/json", "text/html", "application/json;as=Statusz;v=v1beta1;g=config.k8s.io", "application/yaml;as=Statusz;v=v1alpha1;g=config.k8s.io",
		"application/json;as=Statusz;v=v1;g=config.k8s.io", "text/plain;as=Statusz;v=v1beta1;g=config.k8s.io",
	} {
		addDirect("server", "/statusz as "+wanted, func(s *session) { s.do("GET", "/statusz", nil, accept(wanted), briefOnSuccess) })
	}
	addDirect("server", "/index.html", func(s *session) { s.do("GET", "/index.html", nil, briefOnSuccess) })
	for _, coding := range []string{"", "gzip", "gzip;q=0", "GZIP", "*", "identity, gzip", "identity;q=0.1, gzip;q=0.2", "deflate, gzip;q=0.5", "zstd"} {
		addDirect("server", "metrics compressed by "+coding, func(s *session) {
			s.do("GET", "/metrics", nil, header("Accept-Encoding", coding), briefOnSuccess)
			s.do("GET", "/metrics/slis", nil, header("Accept-Encoding", coding), briefOnSuccess)
		})
	}
	const families = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily"
	for _, wanted := range []string{
		"text/plain;version=0.0.4;escaping=allow-utf-8", "text/plain;escaping=dots", "text/plain;escaping=values", "text/plain;escaping=other", "text/plain;version=1.0.0;escaping=allow-utf-8",
		"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.3", "text/html;escaping=dots", "*/*;escaping=dots", "text/plain,text/html;escaping=dots",
		families + ";encoding=other;escaping=dots;q=0.6,text/plain;escaping=values;q=0.4", families + ";encoding=delimited;escaping=allow-utf-8;q=0.6,text/plain;q=0.4",
	} {
		addDirect("server", "metrics as "+wanted, func(s *session) {
			s.do("GET", "/metrics", nil, accept(wanted), headOnSuccess)
			s.do("GET", "/metrics/slis", nil, accept(wanted), headOnSuccess)
		})
	}
	addDirect("server", "profiles", func(s *session) {
		s.do("GET", "/debug/pprof/", nil, briefOnSuccess)
		s.do("GET", "/debug/pprof/profile?seconds=1", nil, briefOnSuccess)
	})
	addDirect("server", "names of metrics", func(s *session) {
		s.create("m")
		s.do("PATCH", s.flunder("m"), `{"metadata":{"labels":{"l":"1"}}}`, contentType(merge), quiet)
		s.do("GET", s.flunders(), nil, quiet)
		s.do("GET", s.flunders(), nil, as("nobody"), quiet)
		s.do("GET", s.flunders()+"?watch=1&timeoutSeconds=1", nil, quiet)
		s.do("GET", s.flunders()+"?watch=1&timeoutSeconds=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan", nil, quiet)
		s.metrics()
	})
	addDirect("server", "an audit id is echoed", func(s *session) {
		answer := s.do("GET", fischers+"/none", nil, header("Audit-Id", "mine"))
		s.say("%q", answer.header.Get("Audit-Id"))
		answer = s.do("GET", fischers+"/none", nil, header("Audit-Id", "0123456789012345678901234567890123456789012345678901234567890123456789"))
		s.say("%t", answer.header.Get("Audit-Id") == "0123456789012345678901234567890123456789012345678901234567890123456789")
	})
	addDirect("server", "a foreign origin is not allowed", func(s *session) {
		s.do("GET", fischers+"/none", nil, header("Origin", "https://example.com"))
		s.do("OPTIONS", fischers, nil, header("Origin", "https://example.com"), header("Access-Control-Request-Method", http.MethodPost))
	})
	for _, timeout := range []string{"1s", "0", "0s", "abc", "-1s", "1h", "1", "", "5sx", "1h5", "1.2.3s", ".", "s"} {
		addDirect("server", "timeout="+timeout, func(s *session) { s.do("GET", fischers+"/none?timeout="+timeout, nil) })
	}
}
