package main

import (
	"fmt"
	"regexp"

	"gopkg.in/yaml.v3"
	"sigs.k8s.io/kustomize/api/resource"
)

// target is what a patch is for. Kustomize passes over a patch whose target matches nothing.
type target struct {
	file              string
	line              int
	group, kind, name string
}

// noteTarget remembers the target of a patch, as far as it can be compared with the result.
func (r *references) noteTarget(file string, patch *yaml.Node) {
	of := field(patch, "target")
	if of == nil || field(patch, "options") != nil || field(of, "labelSelector") != nil || field(of, "annotationSelector") != nil {
		return
	}
	value := func(name string) string {
		if node := field(of, name); node != nil {
			return node.Value
		}
		return ""
	}
	r.targets = append(r.targets, target{
		file: file, line: patch.Line, group: value("group"), kind: value("kind"), name: value("name"),
	})
}

// unmatched has a warning for each target that no object can have been. Names have prefixes, suffixes and hashes by now.
func (r *references) unmatched(objects []*resource.Resource) []string {
	var warnings []string
	for _, target := range r.targets {
		group, kind := whole(target.group), whole(target.kind)
		name, err := regexp.Compile(target.name)
		if group == nil || kind == nil || err != nil {
			continue
		}
		found := false
		for _, object := range objects {
			gvk := object.GetGvk()
			found = found || group.MatchString(gvk.Group) && kind.MatchString(gvk.Kind) && name.MatchString(object.GetName())
		}
		if !found {
			warnings = append(warnings, fmt.Sprintf("%s:%d: the target of the patch (%s %s) matches no object",
				target.file, target.line, target.kind, target.name))
		}
	}
	return warnings
}

// whole matches all of a text, and anything where it is empty; nothing for a wrong expression.
func whole(expression string) *regexp.Regexp {
	if expression == "" {
		expression = ".*"
	}
	compiled, err := regexp.Compile("^(?:" + expression + ")$")
	if err != nil {
		return nil
	}
	return compiled
}
