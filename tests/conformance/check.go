package main

import (
	"fmt"
	"strings"
)

// check is one question, or a few that belong together.
type check struct {
	area, name string
	// mode is direct or front, or empty for both.
	mode string
	ask  func(*session)
	// custom asks kube-apiserver for custom resources instead of the sample-apiserver.
	custom bool
	// stoa asks kube-apiserver for custom resources, and Stoa for the same kinds (kinds.go).
	stoa bool
	// alone is asked when no other check is.
	alone bool
}

var checks []*check

// stored are the areas of what comes from the log beneath a server: versions, pages, watches, conflicts. hack/test asks
// these with each log that the document is not about.
var stored = []string{
	"create", "delete", "deletecollection", "expired", "generation", "get", "list", "list options", random, "status", "update", "watch", "watch options",
}

// add adds a check that is run in both modes.
func add(area, name string, ask func(*session)) {
	checks = append(checks, &check{area: area, name: name, ask: ask})
}

// addDirect adds a check that makes sense only without kube-apiserver in between, which would answer itself.
func addDirect(area, name string, ask func(*session)) {
	checks = append(checks, &check{area: area, name: name, mode: direct, ask: ask})
}

// addCustom adds a check of what the sample-apiserver's kinds do not have, a status above all. The reference is a custom
// resource of the same group and kind in kube-apiserver, which in this is no other than a typed kind.
func addCustom(area, name string, ask func(*session)) {
	checks = append(checks, &check{area: area, name: name, mode: direct, ask: ask, custom: true})
}

// addAlone adds a check that others would not stand beside, of a server without kube-apiserver in between.
func addAlone(area, name string, ask func(*session)) {
	checks = append(checks, &check{area: area, name: name, mode: direct, ask: ask, alone: true})
}

// result is a check with both answers.
type result struct {
	check              *check
	mode               string
	number             int
	reference, subject string
}

func (c *check) title() string { return c.area + ": " + c.name }

func (r *result) title() string {
	return fmt.Sprintf("%s (%s)", r.check.title(), r.mode)
}

func (r *result) equal() bool { return r.reference == r.subject }

// runCheck returns the transcript of a check.
func (b *bed) runCheck(r *result, name, base, mode string) (transcript string) {
	switch {
	case (r.check.custom || r.check.stoa) && name == "reference":
		base = b.apiserver
	case r.check.stoa && mode == direct:
		base = b.stoa
	}
	s := &session{bed: b, base: base, mode: mode, number: r.number, subject: name == "subject", as: "admin"}
	if r.check.stoa {
		s.custom = true
		s.mask(referenceDomain, stoaDomain)
		s.mask(porchReferenceDomain, porchDomain)
	}
	s.mask(base, "<server>")
	s.mask(b.run, "<run>")
	s.mask(fmt.Sprintf("<run>-%d", r.number), "<ns>")
	defer func() {
		if failure := recover(); failure != nil {
			transcript = s.transcript() + fmt.Sprintf("!! %v\n", failure)
		}
	}()
	r.check.ask(s)
	return s.transcript()
}

// difference shows both texts line by line: what they share, what is the reference's (-) and what the subject's (+).
func difference(reference, subject string) string {
	a, b := strings.Split(reference, "\n"), strings.Split(subject, "\n")
	// The length of the longest common subsequence of a[i:] and b[j:].
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var out strings.Builder
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			if a[i] != "" {
				fmt.Fprintf(&out, "    %s\n", a[i])
			}
			i, j = i+1, j+1
		case j == len(b) || (i < len(a) && common[i+1][j] >= common[i][j+1]):
			fmt.Fprintf(&out, "  - %s\n", a[i])
			i++
		default:
			fmt.Fprintf(&out, "  + %s\n", b[j])
			j++
		}
	}
	return out.String()
}
