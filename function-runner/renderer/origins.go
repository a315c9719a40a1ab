package main

import (
	"fmt"
	"path"
	"sort"

	"gopkg.in/yaml.v3"
	chart "helm.sh/helm/v4/pkg/chart/v2"

	"stoa.dev/function-runner/renderer/rendererpb"
)

// The file with the defaults of a chart.
const defaultsFile = "values.yaml"

// The folder of a chart with those that it depends on.
const subchartsFolder = "charts"

// origins are the files that set a value, of a chart by the first part of its path. They are sorted by name, the weakest first.
type origins []*rendererpb.Origin

// defaults adds the values of a chart and of the charts that it depends on, which are weaker.
func (o *origins) defaults(tree *tree, folder string, loaded *chart.Chart) {
	for _, subchart := range subcharts(tree, folder, loaded) {
		origin := &rendererpb.Origin{Name: subchart.Name, Subchart: subchart.Name, File: subchart.Path, IsDefault: true}
		if file := path.Join(subchart.Path, defaultsFile); tree.Exists(path.Join(mount, file)) {
			origin.File = file
		}
		*o = append(*o, origin)
	}
	file := path.Join(folder, defaultsFile)
	if content, err := tree.ReadFile(path.Join(mount, file)); err == nil {
		o.add(file, content, true)
	}
}

// add adds the values of a file, which is stronger than those before.
func (o *origins) add(file string, content []byte, isDefault bool) {
	var document yaml.Node
	if yaml.Unmarshal(content, &document) != nil || len(document.Content) == 0 {
		return
	}
	fields := document.Content[0]
	if fields.Kind != yaml.MappingNode {
		return
	}
	for at := 0; at+1 < len(fields.Content); at += 2 {
		key := fields.Content[at]
		origin := &rendererpb.Origin{Name: key.Value, File: file, Line: uint32(key.Line), IsDefault: isDefault}
		*o = append(*o, origin)
	}
}

func (o origins) sorted() []*rendererpb.Origin {
	sort.SliceStable(o, func(a, b int) bool { return o[a].Name < o[b].Name })
	return o
}

// subcharts are the charts that a chart depends on, as far as its values did not disable them, sorted by name.
func subcharts(tree *tree, folder string, loaded *chart.Chart) []*rendererpb.Subchart {
	var found []*rendererpb.Subchart
	for _, dependency := range loaded.Dependencies() {
		version := ""
		if dependency.Metadata != nil {
			version = dependency.Metadata.Version
		}
		found = append(found, &rendererpb.Subchart{
			Name:    dependency.Name(),
			Version: version,
			Path:    pathOfSubchart(tree, path.Join(folder, subchartsFolder), dependency.Name(), version),
		})
	}
	sort.SliceStable(found, func(a, b int) bool { return found[a].Name < found[b].Name })
	return found
}

// pathOfSubchart is the folder or archive of a chart; the folder around it for one of another name, as an alias has.
func pathOfSubchart(tree *tree, folder, name, version string) string {
	for _, candidate := range []string{name, fmt.Sprintf("%s-%s.tgz", name, version)} {
		if file := path.Join(folder, candidate); tree.Exists(path.Join(mount, file)) {
			return file
		}
	}
	return folder
}
