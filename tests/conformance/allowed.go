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

// cited is where a reason says that a difference comes from: a file of upstream, a standard, or a document of this repository.
var cited = regexp.MustCompile(`\b[AKN]/|\b(sigs\.)?k8s\.io/|golang\.org/|RFC \d+|docs/design/|README\.md`)

func allow(checks, reason string) {
	if !cited.MatchString(reason) {
		panic("no source is cited for what differs: " + reason)
	}
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

// What may differ, and why. A/ is k8s.io/apiserver/pkg, K/ is k8s.io/kubernetes, N/ is Go's net/http.
func init() {
	allow(`discovery: /apis (of an unknown version or plain|in YAML|in anything) \(direct\)`,
		"the reference leaves apiVersion out and adds serverAddressByClientCIDRs; kube-apiserver, which aggregates, does neither "+
			"(k8s.io/kube-aggregator/pkg/apiserver/handler_apis.go)")
	protobufs := "protobuf is not spoken; clients take and send JSON then (apiserver/machinery/README.md)"
	allow(`discovery: .* in protobuf \(direct\)`, protobufs)
	allow(`openapi: /openapi/v3/unknown .* \(direct\)`, "the reference answers a version that it does not have with 200 and nothing (HandleGroupVersion in k8s.io/kube-openapi/pkg/handler3/handler.go); "+
		"kube-apiserver with 404 (handleGroupVersion in k8s.io/kube-aggregator/pkg/controllers/openapiv3/aggregator/aggregator.go), as does the subject")
	allow(`openapi: /openapi/(v2|v3/apis(/.*)?), its media types \(direct\)`, protobufs)
	allow(`server: metrics as application/vnd\.google\.protobuf;.*;encoding=delimited;.* \(direct\)`,
		"metrics are text alone, which every scraper takes; the reference writes protobuf as well (k8s.io/component-base/metrics/legacyregistry)")
	allow(`create: (the name .*|a bad name to generate) \((direct|front)\)`,
		"the reference's storage takes any name that can be a part of a path; names here are DNS subdomains, as those of most of kube-apiserver's kinds "+
			"(ValidateNameFunc in K/pkg/apis/core/validation)")
	updates := "the reference validates its spec when an object is created and never again (ValidateUpdate in k8s.io/sample-apiserver/pkg/registry/wardle/flunder/strategy.go); " +
		"Strategy::validate looks at every write, as kube-apiserver's kinds do (ValidateUpdate in K/pkg/registry/core/configmap/strategy.go)"
	allow(`update: an invalid spec \((direct|front)\)`, updates)
	allow(`patch: merge {"spec":{"reference":null}} \((direct|front)\)`, updates)
	allow(`patch: merge {"spec":{"referenceType":"Fischer","reference":""}} \((direct|front)\)`, updates)
	allow(`patch: JSON \[{"op":"replace","path":"/spec/reference"}\] \((direct|front)\)`, updates)
	allow(`patch: a test of a text (with a bracket|with an escape|in a map, with escapes) \((direct|front)\)`, "a test compares values here (RFC 6902 4.6), and in the reference how texts and numbers are written, "+
		"so that it refuses tests that hold (lazyNode.equal in gopkg.in/evanphx/json-patch.v4/patch.go; docs/design/differences-from-kubernetes.md)")
	allow(`order: a form that there is not, after a create \((direct|front)\)`,
		"the reference writes first and refuses the form of its answer then (A/endpoints/handlers/response.go); here what cannot be answered is not done")
	allow(`websocket: (no origin|the origin (null|%zz|localhost|https://localhost:x)|two subprotocols) \((direct|front)\)`, "the reference's refusal is written past the server, without any of its headers (newServerConn in golang.org/x/net/websocket/server.go)")
	numbers := "both refuse; the reference keeps a number as it was written (literalStore in sigs.k8s.io/json/internal/golang/encoding/json/decode.go), and the subject as it was read"
	allow(`bodies: a generation that is a (huge exponent|large number|number with an exponent) \((direct|front)\)`, numbers)
	allow(`bodies: (a generation|an unknown field) that is a leading nothing \((direct|front)\)`, "both refuse; the subject's parser takes the digit for a part of the number, and the reference's for what follows it (state0 in sigs.k8s.io/json/internal/golang/encoding/json/scanner.go)")
	allow(`bodies: of protobuf \((direct|front)\)`, protobufs)
	allow(`queries: a list with labelSelector=%ff \((direct|front)\)`, "both refuse; what is no UTF-8 is shown as it came by the reference (Lexer in k8s.io/apimachinery/pkg/labels/selector.go) and as U+FFFD by the subject")
	allow(`status: (POST|DELETE|HEAD|OPTIONS) \(direct\)`,
		"the handler of custom resources has words of its own, and takes a HEAD for a get (k8s.io/apiextensions-apiserver/pkg/apiserver/customresource_handler.go); "+
			"of a typed kind, methods are answered as below the sample-apiserver's")
	allow(`numbers: (a fraction of nothing|a fraction with an exponent|an exponent|minus nothing) \(direct\)`, "of custom resources, the integer that was written and a float as large that is sent again are two numbers "+
		"(PrepareForUpdate in k8s.io/apiextensions-apiserver/pkg/registry/customresource/strategy.go); of a typed kind's, and here, they are one")
	allow(`numbers: more than a float holds \(direct\)`, "both refuse; the reference says which type the number has no room in (convertNumber in sigs.k8s.io/json/internal/golang/encoding/json/decode.go), and the subject where it stands")
	allow(`discovery: of trawlers \(direct\)`, "verbs of custom resources are in an order of their own (sync in k8s.io/apiextensions-apiserver/pkg/apiserver/customresource_discovery_controller.go); "+
		"those of typed kinds are sorted (registerResourceHandlers in A/endpoints/installer.go)")
	allow(`status: applied \(direct\)`, "the spec of a custom resource is a map, which is owned for itself; a typed one is a struct, which is always there "+
		"(ObjectToTyped in k8s.io/apimachinery/pkg/util/managedfields/internal/typeconverter.go)")
	allow(`kinds of Stoa: (organizations|notificationsinks|variablesets|modules|repositories), selected by fields \(direct\)`, "custom resources have words of their own for a field that is not known; of a typed kind that names no fields "+
		"of its own it is refused as here (DefaultMetaV1FieldSelectorConversion in k8s.io/apimachinery/pkg/runtime/conversion.go)")
	allow(`kinds of Stoa: organizations, refused \(direct\)`, "an Organization is called as its namespace is, which may be named in fewer ways than custom resources (ValidateNamespaceName in K/pkg/apis/core/validation/validation.go)")
	allow(`kinds of Stoa: repositories, refused \(direct\)`, "the name of a Repository begins those of its package revisions, which separate it by a dot, so that it is a DNS label (docs/design/packages.md)")
	allow(`kinds of Stoa: repositories, fields applied by two \(direct\)`, "a second registration of the same packages is refused, which no schema says (docs/design/packages.md)")
	allowWire()
	allow(`audit: a create of what leaves parts out at request.* \(direct\)`,
		"an object is recorded as it was decoded; in Go that is with its defaults and with the empty parts that its types always have (LogRequestObject in A/audit/request.go)")
}

// allowWire is about what is no HTTP request, or an odd one.
func allowWire() {
	wire := func(checks, reason string) { allow(`wire: (`+checks+`) \((direct|front)\)`, reason) }
	wire(`HTTP/0.9|nonsense|a (header with a blank (before the colon|in its name)|header with a control character|header without a (colon|name)|method that is none|target with a blank|`+
		`header of 1100 KiB|query of 1100 KiB)|a create (in an encoding that there is not|with a length (below nothing|that is none|that is too large|with a sign)|with two lengths)`,
		"both refuse, the reference with a sentence (conn.serve in N/server.go), and the subject's parser with no more than the code")
	wire(`HTTP/1.2|HTTP/2.0 in words`, "both versions are none; the parser refuses either as a bad request (RFC 9112 2.3), N/server.go takes the first and calls the second unsupported")
	wire(`HTTP/2 without its being agreed on`, "over TLS HTTP/2 is agreed on (RFC 9113 3.2), and the reference goes by that alone (conn.serve in N/server.go); the subject speaks it to whoever begins to, and waits for more")
	wire(`a folded header`, "RFC 9112 5.2 lets a server refuse these")
	wire(`an empty line first`, "RFC 9112 2.2 has a server ignore it")
	wire(`a create in chunks and with a length`, "RFC 9112 6.1 has a server close the connection after that")
	wire(`a create (that asks first and may not|without a length)`, "what is left of a body, or follows none, ends the connection or begins the next request; RFC 9112 9.3 leaves that to the server")
	wire(`a request whose head breaks off`, "the reference calls it a bad request (conn.serve in N/server.go); RFC 9112 8 lets a server respond or not, and nobody is there any more to be told")
	wire(`a create that asks first`, "the reference tells the client to go on twice, once as kube-apiserver and once for itself (N/httputil.ReverseProxy)")
	wire(`a query of (300|900) KiB`, "the target of a request has 64 KiB at most in the subject, as its HTTP library has it; RFC 9110 4.1 asks for 8 KB")
}
