package main

import (
	"fmt"
	"sort"
	"strings"

	release "helm.sh/helm/v4/pkg/release/v1"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"sigs.k8s.io/yaml"
)

// step is an object, and when it is applied: those before have smaller numbers, and objects that are no hooks have 0.
type step struct {
	number  int
	file    string
	content string
}

// skipped are the objects of hooks that no step runs.
type skipped []*release.Hook

// The events of hooks that are applied before and after all other objects.
var (
	before = map[release.HookEvent]bool{release.HookPreInstall: true, release.HookPreUpgrade: true}
	after  = map[release.HookEvent]bool{release.HookPostInstall: true, release.HookPostUpgrade: true}
)

// order gives the hooks that an installation or an upgrade runs their steps: as many as there are weights, then as Helm sorts them.
func order(hooks []*release.Hook) ([]step, skipped) {
	var rest skipped
	var pre, post []*release.Hook
	for _, hook := range hooks {
		switch {
		case has(hook, before):
			pre = append(pre, hook)
		case has(hook, after):
			post = append(post, hook)
		default:
			rest = append(rest, hook)
		}
	}
	steps := numbered(pre, func(at, all int) int { return at - all })
	return append(steps, numbered(post, func(at, _ int) int { return at + 1 })...), rest
}

func numbered(hooks []*release.Hook, number func(at, all int) int) []step {
	sort.SliceStable(hooks, func(a, b int) bool { return hooks[a].Weight < hooks[b].Weight })
	var weights []int
	for _, hook := range hooks {
		if len(weights) == 0 || weights[len(weights)-1] != hook.Weight {
			weights = append(weights, hook.Weight)
		}
	}
	var steps []step
	at := 0
	for _, hook := range hooks {
		if weights[at] != hook.Weight {
			at++
		}
		steps = append(steps, step{number: number(at, len(weights)), file: hook.Path, content: hook.Manifest})
	}
	return steps
}

func has(hook *release.Hook, events map[release.HookEvent]bool) bool {
	for _, event := range hook.Events {
		if events[event] {
			return true
		}
	}
	return false
}

func (s skipped) warnings(folder, chart string) []string {
	var warnings []string
	for _, hook := range s {
		var events []string
		for _, event := range hook.Events {
			events = append(events, event.String())
		}
		warnings = append(warnings, fmt.Sprintf("%s: %s %s is a hook for %s, which no run has; it is not deployed",
			inTree(folder, chart, hook.Path), hook.Kind, hook.Name, strings.Join(events, ", ")))
	}
	return warnings
}

// unknownHooks has a warning for each object that Helm leaves out because of an event that it does not know.
func unknownHooks(rendered map[string]string, folder, chart string) []string {
	var warnings []string
	for file, content := range rendered {
		if !strings.Contains(content, release.HookAnnotation) {
			continue
		}
		for _, document := range releaseutil.SplitManifests(content) {
			var head releaseutil.SimpleHead
			if yaml.Unmarshal([]byte(document), &head) != nil || head.Metadata == nil {
				continue
			}
			events, isHook := head.Metadata.Annotations[release.HookAnnotation]
			if !isHook {
				continue
			}
			for event := range strings.SplitSeq(events, ",") {
				if event = strings.ToLower(strings.TrimSpace(event)); !known[event] {
					warnings = append(warnings, fmt.Sprintf("%s: %s %s is a hook for %q, which Helm does not know; it is not deployed",
						inTree(folder, chart, file), head.Kind, head.Metadata.Name, event))
					break
				}
			}
		}
	}
	sort.Strings(warnings)
	return warnings
}

var known = map[string]bool{
	"pre-install": true, "post-install": true, "pre-delete": true, "post-delete": true, "pre-upgrade": true,
	"post-upgrade": true, "pre-rollback": true, "post-rollback": true, "test": true, "test-success": true,
}
