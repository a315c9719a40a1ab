package main

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
	"sync"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	v2util "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"helm.sh/helm/v4/pkg/strvals"

	"stoa.dev/function-runner/renderer/rendererpb"
)

// The name by which Helm finds a chart.
const chartFile = "Chart.yaml"

// The suffix of files with notes for people.
const notes = "NOTES.txt"

// kubernetesVersion is the version for which charts are rendered, as the command assumes it without a cluster.
const kubernetesVersion = "v1.35.0"

// helmVersion is that of the library.
var helmVersion = sync.OnceValue(func() string { return "helm " + version("helm.sh/helm/v4") })

// helm renders a chart as `helm template --include-crds` does, in Helm's order.
func helm(tree *tree, folder string, request *rendererpb.Helm, out *rendering) error {
	folder = clean(folder)
	if err := v2util.ValidateReleaseName(request.ReleaseName); err != nil {
		return fmt.Errorf("the name %q of the release is invalid: %w; set spec.generator.helm.name", request.ReleaseName, err)
	}
	loaded, err := loadChart(tree, folder)
	if err != nil {
		return err
	}
	var files origins
	given, err := values(tree, folder, request, &files)
	if err != nil {
		return err
	}
	if err := v2util.ProcessDependencies(loaded, given); err != nil {
		return &wrong{file: path.Join(folder, chartFile), message: err.Error()}
	}
	var all origins
	all.defaults(tree, folder, loaded)
	out.origins = append(all, files...).sorted()
	out.subcharts = subcharts(tree, folder, loaded)
	capabilities, err := capabilities(request)
	if err != nil {
		return err
	}
	release := common.ReleaseOptions{Name: request.ReleaseName, Namespace: request.Namespace, Revision: 1, IsInstall: true}
	forTemplates, err := util.ToRenderValues(loaded, given, release, capabilities)
	if err != nil {
		return ofSchema(tree, folder, request, err)
	}
	if wanted := loaded.Metadata.KubeVersion; wanted != "" && !v2util.IsCompatibleRange(wanted, capabilities.KubeVersion.String()) {
		message := fmt.Sprintf("chart requires kubeVersion: %s which is incompatible with Kubernetes %s", wanted, capabilities.KubeVersion.Version)
		return &wrong{file: path.Join(folder, chartFile), message: message}
	}
	volatile := newVolatile()
	rendered, err := engine.Engine{CustomTemplateFuncs: volatile.functions}.Render(loaded, forTemplates)
	if err != nil {
		return ofTemplate(folder, loaded.Name(), err)
	}
	if used := volatile.names(); len(used) > 0 {
		out.volatile = true
		out.warnings = append(out.warnings, fmt.Sprintf(
			"templates call %s, which gives another value each time; every plan shows a change", strings.Join(used, ", ")))
	}
	if loaded.Metadata.Deprecated {
		out.warnings = append(out.warnings, path.Join(folder, chartFile)+": the chart is deprecated")
	}
	return collect(folder, loaded, rendered, out)
}

// capabilities are those of the target, or else those of Kubernetes without additional kinds.
func capabilities(request *rendererpb.Helm) (*common.Capabilities, error) {
	version := request.KubeVersion
	if version == "" {
		version = kubernetesVersion
	}
	kubernetes, err := common.ParseKubeVersion(version)
	if err != nil {
		return nil, fmt.Errorf("the version %q of Kubernetes in the target: %w", version, err)
	}
	all := common.DefaultCapabilities.Copy()
	all.KubeVersion = *kubernetes
	if len(request.ApiVersions) > 0 {
		all.APIVersions = common.VersionSet(request.ApiVersions)
	}
	return all, nil
}

// collect adds CRDs, then objects in the order in which they are applied, then hooks.
func collect(folder string, loaded *chart.Chart, rendered map[string]string, out *rendering) error {
	for file := range rendered {
		if strings.HasSuffix(file, notes) {
			delete(rendered, file)
		}
	}
	hooks, objects, err := releaseutil.SortManifests(rendered, nil, releaseutil.InstallOrder)
	if err != nil {
		return ofTemplate(folder, loaded.Name(), err)
	}
	for _, crd := range loaded.CRDObjects() {
		if err := out.add(inTree(folder, loaded.Name(), crd.Filename), crd.File.Data); err != nil {
			return err
		}
	}
	out.warnings = append(out.warnings, unknownHooks(rendered, folder, loaded.Name())...)
	for _, object := range objects {
		if err := out.add(inTree(folder, loaded.Name(), object.Name), []byte(object.Content)); err != nil {
			return err
		}
	}
	// The engine orders hooks by their annotations.
	for _, hook := range hooks {
		if isOfTests(hook) {
			continue
		}
		if err := out.add(inTree(folder, loaded.Name(), hook.Path), []byte(hook.Manifest)); err != nil {
			return err
		}
	}
	return nil
}

// inTree is the path of a chart's file, which Helm names from the folder around the chart.
func inTree(folder, chart, file string) string {
	return path.Join(folder, strings.TrimPrefix(file, chart+"/"))
}

// values are those of files and parameters, which win over the chart's own.
func values(tree *tree, folder string, request *rendererpb.Helm, files *origins) (map[string]any, error) {
	all, final, err := platform(request.Values)
	if err != nil {
		return nil, err
	}
	for _, name := range request.ValuesFiles {
		file, err := join(folder, name)
		if err != nil {
			return nil, located(err, folder, 0).naming(name)
		}
		content, err := tree.ReadFile(path.Join(mount, file))
		if err != nil {
			return nil, located(err, file, 0)
		}
		of, err := loader.LoadValues(bytes.NewReader(content))
		if err != nil {
			return nil, syntax(file, err)
		}
		for name := range of {
			if origin, ok := final[name]; ok {
				message := fmt.Sprintf("value %q is final in %s; remove it from this file", name, origin)
				return nil, &wrong{file: file, message: message}
			}
		}
		files.add(file, content, false)
		all = loader.MergeMaps(all, of)
	}
	for _, parameter := range request.Parameters {
		if err := strvals.ParseInto(parameter.Name+"="+escaped(parameter.Value), all); err != nil {
			return nil, fmt.Errorf("parameter %q: %w", parameter.Name, err)
		}
	}
	return all, nil
}

// platform are the values of the platform, and the origins of those that no file may set.
func platform(values []*rendererpb.Value) (map[string]any, map[string]string, error) {
	all, final := map[string]any{}, map[string]string{}
	for _, value := range values {
		document := fmt.Sprintf("{%q: %s}", value.Name, value.Json)
		of, err := loader.LoadValues(strings.NewReader(document))
		if err != nil {
			return nil, nil, fmt.Errorf("value %q of %s: %w", value.Name, value.Origin, err)
		}
		all = loader.MergeMaps(all, of)
		if value.IsFinal {
			final[value.Name] = value.Origin
		}
	}
	return all, final, nil
}

// escaped is a value in which a comma separates nothing, except in a list in braces.
func escaped(value string) string {
	if isList(value) {
		return value
	}
	value = strings.NewReplacer(`\`, `\\`, `,`, `\,`).Replace(value)
	if strings.HasPrefix(value, "{") {
		return `\` + value
	}
	return value
}

// isList is whether a value is a list in braces to its end. After its end, the library would read other values.
func isList(value string) bool {
	if !strings.HasPrefix(value, "{") {
		return false
	}
	for at := 1; at < len(value); at++ {
		switch value[at] {
		case '\\':
			at++
		case '}':
			return at == len(value)-1
		}
	}
	return false
}

var (
	positionOfTemplate = regexp.MustCompile(`\(([^():\s]+/[^():\s]+):(\d+)`)
	parsedTemplate     = regexp.MustCompile(`(?:template: |on )([^():\s]+/[^():\s]+)(?::(\d+))?`)
)

// ofTemplate is an error of templates with the file and line that it names.
func ofTemplate(folder, chart string, err error) error {
	found := &wrong{file: folder, message: err.Error()}
	var of *wrong
	if errors.As(err, &of) {
		return of
	}
	position := positionOfTemplate.FindStringSubmatch(found.message)
	if position == nil {
		position = parsedTemplate.FindStringSubmatch(found.message)
	}
	if position != nil {
		found.file = inTree(folder, chart, position[1])
		fmt.Sscan(position[2], &found.line)
	}
	return found
}
