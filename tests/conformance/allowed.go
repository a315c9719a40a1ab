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
