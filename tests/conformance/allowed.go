package main

import (
	"regexp"
	"strings"
)

// allowance permits the checks that match to differ, because of what the reason cites.
type allowance struct {
	checks *regexp.Regexp
	reason string
	used   bool
}

var allowances []*allowance

func allow(checks, reason string) {
	allowances = append(allowances, &allowance{checks: regexp.MustCompile("^(?:" + checks + ")$"), reason: reason})
}

// allowed says why a check may differ, or nothing when it may not.
func (r *result) allowed() string {
	for _, a := range allowances {
		if a.checks.MatchString(r.title()) {
			a.used = true
			return a.reason
		}
	}
	return ""
}

// unusedAllowances are those that no check needed.
func unusedAllowances(results []*result) []string {
	for _, result := range results {
		if !result.equal() {
			result.allowed()
		}
	}
	var unused []string
	for _, a := range allowances {
		if !a.used {
			unused = append(unused, strings.Trim(a.checks.String(), "^$"))
		}
	}
	return unused
}

// What may differ, and why. A/ is k8s.io/apiserver/pkg, K/ is k8s.io/kubernetes.
func init() {
	index := "the reference answers paths that it does not know with its index (A/server/routes/index.go, which a server that is nobody's delegate " +
		"falls back to); kube-apiserver answers in plain text (A/util/notfoundhandler), and so does the subject"
	allow(`paths: (/api(/.*)?|/apis/other.*|/unknown/?|/favicon.ico|//apis|/apis/\./wardle.example.com) \(direct\)`, index)
	allow(`methods: \w+ /unknown \(direct\)`, index)
	allow(`almost paths: \w+ with (api for apis|a group in capitals) \(direct\)`, index)
	allow(`discovery: /api .* \(direct\)`, index)
	allow(`server: /(livez/|livez/unknown|unknown as admin) \(direct\)`, index)
	allow(`paths: /apis/wardle.example.com/v1alpha1/watch \(direct\)`,
		"a path that cannot be read is a 500 in A/endpoints/filters/requestinfo.go, and here a path that nothing is known of")
	allow(`discovery: /apis (of an unknown version or plain|in YAML|in anything) \(direct\)`,
		"the reference leaves apiVersion out and adds serverAddressByClientCIDRs; kube-apiserver, which aggregates, does neither "+
			"(k8s.io/kube-aggregator/pkg/apiserver/handler_apis.go)")
	allow(`discovery: .* in protobuf \(direct\)`, "protobuf is not spoken; clients take JSON then (apiserver/machinery/README.md)")
	allow(`openapi: /openapi/v3/unknown .* \(direct\)`, "the reference answers a version that it does not have with 200 and nothing; kube-apiserver with 404, as does the subject")
	allow(`openapi: the (paths|schemas) of v[23] \(direct\)`,
		"names of schemas are Go's packages; documents leave out protobuf, and sharding (alpha)")
	allow(`create: (the name .*|a bad name to generate) \((direct|front)\)`,
		"the reference's storage takes any name that can be a part of a path; names here are DNS subdomains, as those of most of kube-apiserver's kinds "+
			"(ValidateNameFunc in K/pkg/apis/core/validation)")
	updates := "the reference validates its spec when an object is created and never again; Strategy::validate looks at every write, as kube-apiserver's kinds do"
	allow(`update: an invalid spec \((direct|front)\)`, updates)
	allow(`patch: merge {"spec":{"reference":null}} \((direct|front)\)`, updates)
	allow(`patch: merge {"spec":{"referenceType":"Fischer","reference":""}} \((direct|front)\)`, updates)
	allow(`patch: JSON \[{"op":"replace","path":"/spec/reference"}\] \((direct|front)\)`, updates)
	allow(`patch: merge {"status":{"x":1}} \((direct|front)\)`, "a status with no fields takes any, as its schema says; the reference's takes none")
	allow(`watch: initial events as a table.* \((direct|front)\)`, "the time of a bookmark, which has none, is null and not the year 1")
	allow(`watch: as metadata lists \((direct|front)\)`,
		"the reference ends such a watch without an event, as it cannot make a list of one (A/endpoints/handlers/response.go); here it tells metadata")
	allow(`authentication: a token \((direct|front)\)`, "no warning tells of a blank too many before a token, which is not believed either way")
	allow(`websocket: (no origin|two subprotocols) \((direct|front)\)`, "golang.org/x/net/websocket writes its refusal past the server, without any of its headers")
	numbers := "both refuse; a number is shown as it was read, not as it was written"
	allow(`bodies: a generation that is a (huge exponent|large number|number with an exponent) \((direct|front)\)`, numbers)
	allow(`bodies: (a generation|an unknown field) that is a leading nothing \((direct|front)\)`, "both refuse; the parser takes the digit for a part of the number")
	allow(`bodies: of protobuf \((direct|front)\)`, "protobuf is not spoken; clients send JSON then (apiserver/machinery/README.md)")
	allow(`queries: a list with labelSelector=%ff \((direct|front)\)`, "both refuse; what is no UTF-8 is read as U+FFFD")
	allow(`status: (POST|DELETE|HEAD|OPTIONS) \(direct\)`,
		"the handler of custom resources has words of its own, and takes a HEAD for a get (k8s.io/apiextensions-apiserver/pkg/apiserver/customresource_handler.go); "+
			"of a typed kind, methods are answered as below the sample-apiserver's")
	allow(`discovery: of trawlers \(direct\)`, "verbs of custom resources are in an order of their own; those of typed kinds are sorted")
	allow(`status: applied \(direct\)`, "the spec of a custom resource is a map, which is owned for itself; a typed one is a struct, which is always there")
}
