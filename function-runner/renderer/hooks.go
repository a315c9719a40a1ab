package main

import (
	"fmt"
	"sort"
	"strings"

	release "helm.sh/helm/v4/pkg/release/v1"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"sigs.k8s.io/yaml"
)

// isOfTests is whether a hook is for tests alone. No run has tests.
func isOfTests(hook *release.Hook) bool {
	for _, event := range hook.Events {
		if event != release.HookTest {
			return false
		}
	}
	return true
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
