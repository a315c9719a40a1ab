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
	allowWire()
	allow(`audit: a create of what leaves parts out at request.* \(direct\)`,
		"an object is recorded as it was decoded; defaults, and the empty parts that Go's types always have, come after that")
}

// allowWire is about what is no HTTP request, or an odd one. N/ is Go's net/http.
func allowWire() {
	wire := func(checks, reason string) { allow(`wire: (`+checks+`) \((direct|front)\)`, reason) }
	wire(`HTTP/0.9|nonsense|a (header with a blank (before the colon|in its name)|header with a control character|header without a (colon|name)|method that is none|target with a blank|`+
		`header of 1100 KiB|query of 1100 KiB)|a create (in an encoding that there is not|with a length (below nothing|that is none|that is too large|with a sign)|with two lengths)`,
		"both refuse, and the subject's parser says no more than the code")
	wire(`HTTP/1.2|HTTP/2.0 in words`, "both versions are none; the parser refuses either as a bad request (RFC 9112 2.3), N/server.go takes the first and calls the second unsupported")
	wire(`HTTP/2 without its being agreed on`, "the subject speaks HTTP/2 to whoever begins to, and waits for more")
	wire(`a folded header`, "RFC 9112 5.2 lets a server refuse these")
	wire(`an empty line first`, "RFC 9112 2.2 has a server ignore it")
	wire(`a create in chunks and with a length`, "RFC 9112 6.1 has a server close the connection after that")
	wire(`a create (that asks first and may not|without a length)`, "what is left of a body, or follows none, ends the connection or begins the next request; RFC 9112 9.3 leaves that to the server")
	wire(`a request whose head breaks off`, "nobody is there any more to be told, or nothing to be told of")
	wire(`a create that asks first`, "the reference tells the client to go on twice, once as kube-apiserver and once for itself (N/httputil.ReverseProxy)")
	wire(`a query of (300|900) KiB`, "the target of a request has 64 KiB at most in the subject, as its HTTP library has it; RFC 9110 4.1 asks for 8 KB")
	wire(`an asterisk to get|a tunnel`, "the reference answers paths that it does not know with its index (A/server/routes/index.go)")
}
