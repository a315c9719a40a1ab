package main

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"time"
)

// Objects of Stoa's own kinds, and how a conversation makes, awaits and removes them.

// kind is one of Stoa's kinds, with objects of it that Stoa's own validation takes.
type kind struct {
	group, plural, name string
	namespaced          bool
	// spec is what an object has to say of itself.
	spec func(*collection) map[string]any
	// whole are specs that have every field that may be set together with the others.
	whole []func(*collection) map[string]any
	// field is one that may change, without the spec in front, and values are three that it can have: the last is like the first, or
	// another.
	field  string
	values [3]any
	// metadata is what the server adds to that of every object, and added are labels that it adds.
	metadata map[string]any
	added    func(*collection) map[string]any
	// before makes what objects of Stoa refer to; the reference's refer to nothing.
	before func(*collection)
	// written says that a controller writes what objects are like after their client did.
	written bool
	// dry says that objects are only made in dry runs, as they would have something done.
	dry bool
	// statusless says that objects have no status.
	statusless bool
	// unchanging says that nothing but the one field of a spec changes.
	unchanging bool
	// untold are fields that none of them has, with what is in them: another stands for them, what they name would have to be there, or
	// they are never shown.
	untold []string
	// ruled are fields, without the spec in front, whose absence is for Stoa's own rules, not the schema.
	ruled []string
	// strategic are strategic merge patches of an object with the first of the whole specs.
	strategic []strategicPatch
	// columns are those that a path leads to.
	columns []column
	// selectable are the fields that selectors may name.
	selectable []string
}

// strategicPatch is one, and a JSON patch that does the same.
type strategicPatch struct{ patch, like string }

// column is one of a table.
type column struct {
	name, kind, path string
	priority         int64
}

// fields is a shorthand.
type fields = map[string]any

func always(spec fields) func(*collection) map[string]any {
	return func(*collection) map[string]any { return spec }
}

var (
	leads     = fields{"kind": "Group", "name": "leads", "apiGroup": "rbac.authorization.k8s.io"}
	robot     = fields{"kind": "ServiceAccount", "name": "robot", "namespace": "none"}
	owners    = []any{leads, robot}
	secretKey = fields{"namespace": "none", "name": "none", "key": "key"}
	secret    = fields{"namespace": "none", "name": "none"}
	beside    = fields{"name": "none"}
	selector  = fields{
		"matchLabels": fields{"tier": "one"}, "matchExpressions": []any{fields{"key": "tier", "operator": "In", "values": []any{"one", "two"}}},
	}
)

// packages is a repository that is never read.
var packages = fields{
	"type": "git", "content": "Package", "git": fields{"repo": "https://127.0.0.1:9/none.git", "branch": "main"}, "sync": fields{"schedule": "0 0 1 1 *"},
}

// ofSelector are the fields of a label selector that it has to have, which a typed kind has sentences of its own about
// (ValidateLabelSelector in k8s.io/apimachinery/pkg/apis/meta/v1/validation).
func ofSelector(field string) []string {
	return []string{field + ".matchExpressions[].key", field + ".matchExpressions[].operator", field + ".matchExpressions[].values"}
}

func finalizers(names ...any) fields { return fields{"finalizers": names} }

var kinds = []kind{
	{
		group: "config.stoa.dev", plural: "organizations", name: "Organization", field: "description", values: described, written: true,
		spec: always(fields{"deletionPolicy": "Orphan"}), metadata: finalizers("stoa.dev/namespace"),
		whole: []func(*collection) map[string]any{always(fields{
			"description": "one", "owners": owners, "members": []any{fields{"subject": leads, "role": "developer"}, fields{"subject": robot, "role": "viewer"}}, "deletionPolicy": "Orphan",
		})},
		columns: []column{{"Description", "string", ".spec.description", 1}},
	},
	{
		group: "config.stoa.dev", plural: "projects", name: "Project", namespaced: true, field: "description", values: described,
		spec: always(fields{"source": fields{"name": "none"}}), metadata: finalizers("stoa.dev/stacks"),
		whole: []func(*collection) map[string]any{always(fields{
			"description": "one", "owners": owners, "source": fields{"name": "none"}, "path": "apps/web", "template": fields{"source": fields{"name": "other"}, "path": "web"},
			"access": "Owners", "deletionPolicy": "Destroy",
		})},
		columns: []column{
			{"Source", "string", ".spec.source.name", 0}, {"Path", "string", ".spec.path", 0}, {"Age", "date", ".metadata.creationTimestamp", 0}, {"Description", "string", ".spec.description", 1},
		},
		selectable: []string{"spec.source.name"},
	},
	{
		group: "config.stoa.dev", plural: "stacks", name: "Stack", namespaced: true, field: "description", values: described,
		spec: always(fields{"project": "web", "stackName": "dev"}), metadata: finalizers("stoa.dev/infrastructure"), before: (*collection).makeProject,
		whole: []func(*collection) map[string]any{always(fields{
			"description": "one", "owners": owners, "project": "web", "stackName": "dev", "path": "apps/web/dev", "desiredVersion": "v1", "workspaces": []any{"one", "two"},
			"trigger": "Manual", "driftInterval": "30s", "generator": fields{"type": "Helm", "parameters": fields{"cell": "c1"}, "helm": fields{"name": "web", "namespace": "shop", "valuesFiles": []any{"values-dev.yaml"}}}, "requireApproval": true, "deletionPolicy": "Orphan",
		})},
		ruled: []string{"stackName"},
		strategic: []strategicPatch{
			{`{"spec":{"workspaces":["three"]}}`, `[{"op":"add","path":"/spec/workspaces/0","value":"three"}]`},
			{`{"spec":{"$deleteFromPrimitiveList/workspaces":["one"]}}`, `[{"op":"remove","path":"/spec/workspaces/1"}]`},
			{`{"spec":{"generator":{"parameters":{"cell":null,"other":"1"}}}}`, `[{"op":"replace","path":"/spec/generator/parameters","value":{"other":"1"}}]`},
			{`{"spec":{"owners":[]}}`, `[{"op":"remove","path":"/spec/owners"}]`},
		},
		columns: []column{
			{"Project", "string", ".spec.project", 0}, {"Desired", "string", ".spec.desiredVersion", 0}, {"Age", "date", ".metadata.creationTimestamp", 0}, {"Path", "string", ".spec.path", 1},
		},
		selectable: []string{"spec.project"},
	},
	{
		group: "config.stoa.dev", plural: "sources", name: "Source", namespaced: true, field: "description", values: described, written: true,
		spec: always(fields{"remote": "https://127.0.0.1:9/none.git", "pollInterval": "24h"}),
		whole: []func(*collection) map[string]any{always(fields{
			"description": "one", "owners": owners, "provider": "Git", "remote": "https://127.0.0.1:9/a/none.git", "ref": "main", "secretRef": beside, "pollInterval": "24h",
			"webhook": fields{"secretRef": beside}, "pullRequests": fields{"provider": "Gitea", "url": "https://git.example.com", "secretRef": beside, "allowForks": true},
			"verify": fields{"publicKeys": []any{"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti"}, "secretRef": beside, "configMapRef": fields{"name": "keys"}},
		}), always(fields{
			"provider": "Helm", "remote": "https://127.0.0.1:9/charts", "chart": "web", "ref": "1.2.3", "secretRef": beside, "pollInterval": "24h",
		})},
		untold: []string{"package", "secretRef.namespace", "webhook.secretRef.namespace", "pullRequests.secretRef.namespace", "verify.secretRef.namespace"},
		ruled:  []string{"remote", "chart", "provider"},
		columns: []column{
			{"Provider", "string", ".spec.provider", 0}, {"Remote", "string", ".spec.remote", 0}, {"Ref", "string", ".spec.ref", 0}, {"Age", "date", ".metadata.creationTimestamp", 0},
		},
		selectable: []string{"spec.remote"},
	},
	{
		group: "delivery.stoa.dev", plural: "releases", name: "Release", namespaced: true,
		columns: []column{
			{"Stack", "string", ".spec.stack", 0}, {"Workspace", "string", ".spec.workspace", 0}, {"Revision", "integer", ".spec.revision", 0}, {"Run", "string", ".spec.run", 0},
			{"Age", "date", ".metadata.creationTimestamp", 0}, {"Rollback-Of", "integer", ".spec.rollbackOf", 1}, {"Tombstone", "boolean", ".spec.tombstone", 1},
		},
		selectable: []string{"spec.stack", "spec.workspace", "spec.run"},
	},
	{
		group: "delivery.stoa.dev", plural: "resources", name: "Resource", namespaced: true,
		columns: []column{
			{"Stack", "string", ".spec.stack", 0}, {"Workspace", "string", ".spec.workspace", 0}, {"Phase", "string", ".status.phase", 0}, {"Health", "string", ".status.health", 0},
			{"Age", "date", ".metadata.creationTimestamp", 0}, {"Id", "string", ".spec.id", 1}, {"Release", "integer", ".spec.release", 1},
		},
		selectable: []string{"spec.stack", "spec.workspace", "spec.id", "spec.type", "spec.kubernetes.uid", "spec.cloud.arn", "status.phase"},
	},
	{
		group: "delivery.stoa.dev", plural: "runs", name: "Run", namespaced: true, dry: true, before: (*collection).makeStack,
		spec: func(c *collection) map[string]any {
			return fields{"stack": "dev", "workspace": c.name("w"), "operation": "Preview"}
		},
		metadata: finalizers("stoa.dev/run"), added: func(c *collection) map[string]any {
			return fields{"stoa.dev/project": "web", "stoa.dev/stack": "dev", "stoa.dev/workspace": c.name("w")}
		},
		whole: []func(*collection) map[string]any{
			func(c *collection) map[string]any {
				return fields{
					"description": "one", "owners": owners, "stack": "dev", "workspace": c.name("w"), "operation": "Apply", "version": "v1", "parameters": fields{"cell": "c1"}, "requireApproval": true, "allowMassDeletion": true, "skipHooks": true,
					"forgetClusters": []any{"b"}, "onConflict": "Refuse", "cancel": true, "timeout": "30m", "ttlSecondsAfterFinished": 60,
				}
			},
			func(c *collection) map[string]any {
				return fields{
					"stack": "dev", "workspace": c.name("w"), "operation": "Preview", "of": "Import",
					"import": fields{"resources": []any{fields{"id": "v1:Namespace:web", "infrastructureId": "web"}}},
				}
			},
			func(c *collection) map[string]any {
				return fields{
					"stack": "dev", "workspace": c.name("w"), "operation": "Import",
					"import": fields{"kusion": fields{"project": "p", "workspace": "w", "revision": 2, "path": "releases/x"}},
				}
			},
			func(c *collection) map[string]any {
				return fields{
					"stack": "dev", "workspace": c.name("w"), "operation": "Import", "import": fields{"terraform": fields{"path": "terraform.tfstate"}},
				}
			},
		},
		ruled:  []string{"workspace", "of"},
		untold: []string{"plan", "release", "retry"},
		columns: []column{
			{"Stack", "string", ".spec.stack", 0}, {"Workspace", "string", ".spec.workspace", 0}, {"Operation", "string", ".spec.operation", 0}, {"Age", "date", ".metadata.creationTimestamp", 0},
		},
		selectable: []string{"spec.stack", "spec.workspace", "spec.operation"},
	},
	{
		group: "delivery.stoa.dev", plural: "workflows", name: "Workflow", namespaced: true, field: "paused", values: [3]any{false, true, false}, written: true, unchanging: true,
		spec: always(fields{"steps": []any{fields{"name": "ask", "approval": fields{"message": "go on?"}}}, "paused": true}), metadata: finalizers("stoa.dev/workflow"),
		before: (*collection).makeStack,
		whole: []func(*collection) map[string]any{
			func(c *collection) map[string]any {
				hook := fields{
					"name": "call", "url": "https://hooks.example.com/stoa", "secretRef": fields{"name": "none", "key": "key"}, "each": "Step", "when": "Always", "timeout": "20s",
					"retry": fields{"maxAttempts": 3, "maxAge": "5m", "minBackoff": "2s", "maxBackoff": "20s"}, "failurePolicy": "Ignore",
				}
				before := fields{"name": "call", "url": "https://hooks.example.com/stoa", "secretRef": fields{"name": "none", "key": "key"}}
				health := fields{"healthyFor": "1m", "timeout": "5m"}
				waves := []any{
					fields{"workspaces": []any{c.name("w")}, "pauseAfter": "1m"}, fields{"workspaceSelector": selector},
				}
				return fields{
					"description": "one", "owners": owners, "version": "v1", "paused": true, "cancel": true, "timeout": "24h", "ttlSecondsAfterFinished": 60, "hooks": fields{"pre": []any{before}, "post": []any{with(hook, "name", "tell")}},
					"steps": []any{
						fields{"name": "ask", "approval": fields{"message": "go on?"}},
						fields{"name": "waves", "dependsOn": []any{"ask"}, "when": "Always", "hooks": fields{"pre": []any{before}}, "run": fields{
							"stack": "dev", "operation": "Apply", "waves": waves, "maxParallel": 2, "maxFailures": 1, "version": "v2", "parameters": fields{"cell": "c1"},
							"requireApproval": true, "timeout": "30m", "health": health,
						}},
						fields{"name": "one", "run": fields{"stack": "dev", "operation": "Refresh", "workspaces": []any{c.name("w")}}},
						fields{"name": "look", "run": fields{"stack": "dev", "operation": "Preview", "workspaces": []any{c.name("w")}}},
						fields{"name": "exactly", "dependsOn": []any{"look"}, "run": fields{"stack": "dev", "operation": "Apply", "planOf": "look", "workspaces": []any{c.name("w")}}},
					},
				}
			},
			always(fields{"template": fields{"project": "web", "path": "flow.yaml", "parameters": fields{"a": "b"}}}),
		},
		untold: []string{"stack", "hooks.pre[]", "hooks.post[].caBundle", "steps[].hooks.pre[]", "steps[].hooks.post", "steps[].run.release"},
		ruled: append([]string{
			"template", "steps", "steps[].approval", "steps[].dependsOn", "steps[].run", "steps[].run.stack", "steps[].run.waves", "steps[].run.waves[].workspaces",
			"steps[].run.waves[].workspaceSelector", "steps[].run.workspaces",
		}, ofSelector("steps[].run.waves[].workspaceSelector")...),
		columns: []column{
			{"Stack", "string", ".spec.stack", 0}, {"Age", "date", ".metadata.creationTimestamp", 0}, {"Version", "string", ".spec.version", 1},
		},
		selectable: []string{"spec.stack"},
	},
	{
		group: "platform.stoa.dev", plural: "backends", name: "Backend", field: "description", values: described, written: true,
		spec: always(fields{"type": "Local"}),
		whole: []func(*collection) map[string]any{
			always(fields{
				"description": "one", "owners": owners, "type": "S3",
				"s3": fields{"bucket": "bucket", "prefix": "a/b", "region": "eu-central-1", "endpoint": "https://s3.example.com", "addressing": "Path", "credentialsSecretRef": secret},
			}),
			always(fields{"type": "Local", "local": fields{"directory": "somewhere"}}),
		},
		untold:     []string{"accessKey", "secretKey"},
		ruled:      []string{"s3", "s3.credentialsSecretRef", "s3.credentialsSecretRef.namespace"},
		columns:    []column{{"Type", "string", ".spec.type", 0}, {"Age", "date", ".metadata.creationTimestamp", 0}},
		selectable: []string{"spec.type"},
	},
	{
		group: "config.porch.kpt.dev", plural: "repositories", name: "Repository", namespaced: true, field: "description", values: described, written: true,
		spec: always(packages),
		whole: []func(*collection) map[string]any{
			func(c *collection) map[string]any {
				return with(fields{
					"description": "one", "deployment": true, "type": "git", "content": "Package",
					"git":  fields{"branch": "trunk", "createBranch": true, "directory": "packages", "secretRef": beside, "author": "Robot", "email": "robot@example.com"},
					"sync": fields{"schedule": "0 0 1 1 *"}, "upstream": fields{"repositoryRef": fields{"name": "blueprints"}},
					"mutators":   []any{fields{"image": "set-labels:v0.2.0", "configMap": fields{"team": "shop"}}},
					"validators": []any{fields{"image": "example.com/check:v1", "configMap": fields{"strict": "true"}}},
					"webhook":    fields{"secretRef": beside},
				}, "git.repo", c.remote("whole"))
			},
			always(fields{
				"type": "git", "content": "Package", "readOnly": true, "git": fields{"repo": "https://127.0.0.1:9/a/none.git", "branch": "main"},
				"upstream": fields{"type": "git", "git": fields{
					"repo": "https://127.0.0.1:9/a/upstream.git", "branch": "trunk", "createBranch": true, "directory": "packages", "secretRef": beside, "author": "Robot", "email": "robot@example.com",
				}},
			}),
		},
		untold: []string{"oci", "sync.runOnceAt", "webhook.secretRef.namespace"},
		ruled:  []string{"content", "git", "git.repo", "upstream.git", "upstream.git.repo", "upstream.repositoryRef", "upstream.repositoryRef.name"},
		columns: []column{
			{"Type", "string", ".spec.type", 0}, {"Content", "string", ".spec.content", 0}, {"Deployment", "boolean", ".spec.deployment", 0}, {"Address", "string", ".spec.git.repo", 0},
		},
	},
	{
		group: "platform.stoa.dev", plural: "notificationsinks", name: "NotificationSink", field: "description", values: described, written: true,
		spec: always(fields{"url": "https://hooks.example.com/stoa", "secretRef": secretKey, "suspend": true}),
		whole: []func(*collection) map[string]any{always(fields{
			"description": "one", "owners": owners, "url": "https://hooks.example.com/stoa", "secretRef": secretKey, "source": "https://stoa.example.com", "events": []any{"dev.stoa.run.*"},
			"organizations": []any{"a", "b"}, "organizationSelector": selector, "projects": []any{"p"}, "stacks": []any{"s"}, "workspaces": []any{"w"}, "timeout": "5s",
			"retry": fields{"maxAttempts": 3, "maxAge": "1h", "minBackoff": "2s", "maxBackoff": "1m"}, "suspend": true,
		})},
		ruled:   ofSelector("organizationSelector"),
		untold:  []string{"caBundle"},
		columns: []column{{"Suspended", "boolean", ".spec.suspend", 0}, {"Age", "date", ".metadata.creationTimestamp", 0}},
	},
	{
		group: "platform.stoa.dev", plural: "modules", name: "Module", field: "description", values: described, written: true,
		spec: always(fields{"path": "oci://registry.example.com/network", "versions": []any{fields{"version": "0.2.0"}}}),
		whole: []func(*collection) map[string]any{always(fields{
			"description": "one", "owners": owners, "path": "oci://registry.example.com/network", "source": "Registry",
			"versions":  []any{fields{"version": "0.2.0", "digest": "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"}, fields{"version": "0.3.0"}},
			"secretRef": secret, "schema": fields{"type": "object"},
		})},
		ruled:   []string{"secretRef", "secretRef.namespace", "schema"},
		columns: []column{{"Source", "string", ".spec.source", 0}, {"Age", "date", ".metadata.creationTimestamp", 0}, {"Path", "string", ".spec.path", 1}},
	},
	{
		group: "platform.stoa.dev", plural: "variablesets", name: "VariableSet", field: "description", values: described,
		spec: always(fields{"values": fields{"region": "eu"}}),
		whole: []func(*collection) map[string]any{always(fields{
			"description": "one", "owners": owners, "values": fields{"region": "eu", "sizes": []any{1, "two", nil}, "image": fields{"tag": "1"}}, "secrets": fields{"password": secretKey},
			"finalValues": []any{"region"}, "organizations": []any{"a", "b"}, "organizationSelector": selector, "projects": []any{"p"}, "projectSelector": selector,
			"stacks": []any{"s"}, "stackSelector": selector, "workspaces": []any{"w"}, "workspaceSelector": selector,
		})},
		statusless: true,
		ruled: slices.Concat(
			[]string{"values"}, ofSelector("organizationSelector"), ofSelector("projectSelector"), ofSelector("stackSelector"), ofSelector("workspaceSelector"),
		),
		columns: []column{{"Age", "date", ".metadata.creationTimestamp", 0}, {"Description", "string", ".spec.description", 1}},
	},
	{
		group: "platform.stoa.dev", plural: "workspaces", name: "Workspace", field: "description", values: described,
		spec: always(fields{"backend": fields{"name": "none"}}),
		whole: []func(*collection) map[string]any{
			always(fields{
				"description": "one", "owners": owners, "backend": fields{"name": "none"},
				"kubernetes": fields{"clusters": []any{fields{"name": "main", "kubeconfigSecretRef": secretKey, "context": "admin"}, fields{"name": "own", "inCluster": true}}, "unlistedContents": "Ignore"},
				"modules":    fields{"service": fields{"path": "oci://example.com/service", "version": "1"}}, "secretStore": fields{"provider": fields{"vault": fields{"server": "https://vault.example.com"}}},
				"secretStores": []any{
					fields{"name": "kubernetes", "provider": fields{"kubernetes": fields{"namespace": "platform", "triggered": []any{"db"}}}},
					fields{"name": "vault", "provider": fields{"vault": fields{"server": "https://vault.example.com", "path": "kv", "version": "v1"}}, "secretRef": secret},
					fields{"name": "aws", "provider": fields{"aws": fields{"region": "eu-central-1", "endpoint": "https://aws.example.com", "profile": "none"}}, "secretRef": secret},
					fields{"name": "azure", "provider": fields{"azure": fields{"vaultUrl": "https://a.vault.azure.net", "tenantId": "t", "environmentType": "AzurePublicCloud", "authorityHost": "https://login.example.com"}}, "secretRef": secret},
					fields{"name": "alicloud", "provider": fields{"alicloud": fields{"region": "cn-hangzhou", "endpoint": "https://kms.example.com"}}, "secretRef": secret},
					fields{"name": "file", "provider": fields{"file": fields{"path": "secrets.age"}}, "secretRef": secret},
				},
				"sops": fields{"ageKeySecretRef": secret},
				"terraform": fields{
					"mirror": fields{"directory": "/opt/stoa/providers"}, "lock": "# none", "network": "Deny",
					"providers": []any{fields{"name": "aws", "source": "hashicorp/aws", "configuration": fields{"region": "x", "retries": 3}, "environmentSecretRef": secret, "configurationSecretRef": secret}},
				},
				"context": fields{"number": 1, "list": []any{1, "two", nil}}, "values": fields{"region": "eu", "sizes": []any{1}}, "finalValues": []any{"region"}, "requireApproval": true, "retention": fields{"runs": 5, "releases": 6, "deletedStackDays": 7, "deletedStackRecords": 8},
				"healthPolicies": []any{fields{"apiVersion": "example.com/v1", "kind": "Thing", "current": "true", "failed": "false", "inProgress": "false"}},
			}),
			always(fields{
				"backend": fields{"name": "none"}, "terraform": fields{"mirror": fields{"url": "https://mirror.example.com/providers/", "secretRef": secret}, "lock": "# none"},
				"gitops": fields{
					"repository": "https://git.example.com/a/b.git", "branch": "trunk", "directory": "dev", "mode": "PullRequest", "secretRef": secret,
					"createBranch": true, "validation": "Warn", "kubernetesVersion": "1.35",
					"pullRequest": fields{"provider": "GitHub", "url": "https://git.example.com", "branchPrefix": "stoa/", "secretRef": secret},
					"compliance": fields{"interval": "2m", "wait": "10m", "reconcilers": []any{
						fields{"name": "main", "kubeconfigSecretRef": secretKey, "context": "admin", "kustomization": fields{"namespace": "flux", "name": "web"}},
						fields{"name": "own", "inCluster": true, "application": fields{"namespace": "argo", "name": "web"}},
					}},
				},
			}),
			always(fields{
				"backend":   fields{"name": "none"},
				"terraform": fields{"mirror": fields{"repositoryTemplate": "registry.example.com/providers/${namespace}/${type}", "secretRef": secret}, "lock": "# none"},
			}),
		},
		strategic: []strategicPatch{
			{`{"spec":{"kubernetes":{"clusters":[{"name":"own","context":"x"}]}}}`, `[{"op":"add","path":"/spec/kubernetes/clusters/1/context","value":"x"}]`},
			{`{"spec":{"kubernetes":{"clusters":[{"name":"more","inCluster":true}]}}}`, `[{"op":"add","path":"/spec/kubernetes/clusters/0","value":{"name":"more","inCluster":true}}]`},
			{`{"spec":{"kubernetes":{"clusters":[{"$patch":"delete","name":"main"}]}}}`, `[{"op":"remove","path":"/spec/kubernetes/clusters/1"}]`},
			{`{"spec":{"retention":{"$patch":"replace","runs":1}}}`, `[{"op":"replace","path":"/spec/retention","value":{"runs":1}}]`},
			{`{"spec":{"owners":[{"kind":"User","name":"bob"}]}}`, `[{"op":"replace","path":"/spec/owners","value":[{"kind":"User","name":"bob"}]}]`},
		},
		ruled: []string{
			"kubernetes.clusters[].kubeconfigSecretRef", "kubernetes.clusters[].inCluster", "gitops.secretRef.namespace", "gitops.pullRequest", "gitops.pullRequest.secretRef.namespace",
			"gitops.compliance.reconcilers[].kubeconfigSecretRef", "gitops.compliance.reconcilers[].inCluster", "gitops.compliance.reconcilers[].kustomization",
			"gitops.compliance.reconcilers[].application", "terraform.providers", "terraform.mirror.secretRef.namespace", "terraform.mirror.directory", "terraform.mirror.url", "terraform.mirror.repositoryTemplate",
			"terraform.providers[].environmentSecretRef.namespace", "terraform.providers[].configurationSecretRef.namespace", "values",
			"kubernetes", "secretStores[].secretRef", "secretStores[].secretRef.namespace", "secretStores[].provider.kubernetes", "secretStores[].provider.vault",
			"secretStores[].provider.aws", "secretStores[].provider.azure", "secretStores[].provider.alicloud", "secretStores[].provider.file", "sops.ageKeySecretRef.namespace",
		},
		columns:    []column{{"Backend", "string", ".spec.backend.name", 0}, {"Age", "date", ".metadata.creationTimestamp", 0}},
		selectable: []string{"spec.backend.name"},
	},
}

var described = [3]any{"one", "two", "three"}

// collection is the conversation of a check about a kind; the objects that it makes have a label in common.
type collection struct {
	*session
	kind kind
}

// apiVersion is that of the server that is asked.
func (c *collection) apiVersion() string {
	group := c.kind.group
	if !c.subject {
		group = toReference.Replace(group)
	}
	return group + "/v1alpha1"
}

func (c *collection) all() string {
	if c.kind.namespaced {
		return "/apis/" + c.apiVersion() + "/namespaces/" + c.ns() + "/" + c.kind.plural
	}
	return "/apis/" + c.apiVersion() + "/" + c.kind.plural
}

func (c *collection) one(suffix string) string { return c.all() + "/" + c.name(suffix) }
func (c *collection) own(query string) string {
	return c.all() + "?labelSelector=check%3D" + c.name("all") + query
}
func (c *collection) labels() map[string]any     { return fields{"check": c.name("all")} }
func (c *collection) make(suffix string) *answer { return c.setup("POST", c.all(), c.object(suffix)) }

// object is one of the kind.
func (c *collection) object(suffix string, more ...any) map[string]any {
	spec := c.kind.spec(c)
	o := with(fields{"apiVersion": c.apiVersion(), "kind": c.kind.name, "metadata": fields{"name": c.name(suffix), "labels": c.labels()}, "spec": spec})
	if c.kind.name == "Source" {
		// A second one of the same repository is refused in a namespace.
		o = with(o, "spec.remote", "https://127.0.0.1:9/"+c.name(suffix)+".git")
	}
	if c.kind.name == "Repository" {
		// The same, and in another namespace, too.
		o = with(o, "spec.git.repo", c.remote(suffix))
	}
	for name, value := range c.kind.metadata {
		o = with(o, "metadata."+name, value)
	}
	if c.kind.added != nil {
		labels := o["metadata"].(map[string]any)["labels"].(map[string]any)
		maps.Copy(labels, c.kind.added(c))
	}
	return with(o, more...)
}

// remote is a repository that no other object has.
func (c *collection) remote(suffix string) string {
	return "https://127.0.0.1:9/" + c.ns() + "/" + c.name(suffix) + ".git"
}

// wholeOf is one with the spec of that number.
func (c *collection) wholeOf(number int) map[string]any {
	return c.object("a", "spec", c.kind.whole[number](c))
}

// changed is what to give with for the field to have the value of that number.
func (c *collection) changed(number int) []any {
	return []any{"spec." + c.kind.field, c.kind.values[number]}
}

// changing is a merge patch that does so.
func (c *collection) changing(number int) map[string]any {
	return fields{"spec": fields{c.kind.field: c.kind.values[number]}}
}

// other is a request about an object of another kind of Stoa's, which must succeed.
func (c *collection) other(group, plural, kind, name string, spec map[string]any) {
	path := "/apis/" + group + "/v1alpha1/"
	if plural != "workspaces" {
		path += "namespaces/" + c.ns() + "/"
	}
	o := fields{"apiVersion": group + "/v1alpha1", "kind": kind, "metadata": fields{"name": name, "labels": c.labels()}, "spec": spec}
	if a := c.do("POST", path+plural, o, quiet); a.code != http.StatusCreated && a.code != http.StatusConflict {
		c.say("making %s %s: %d %s", kind, name, a.code, a.text("message"))
	}
}

func (c *collection) makeProject() {
	c.other("config.stoa.dev", "projects", "Project", "web", fields{"source": fields{"name": "none"}})
}

func (c *collection) makeStack() {
	c.makeProject()
	c.other("platform.stoa.dev", "workspaces", "Workspace", c.name("w"), fields{"backend": fields{"name": "none"}})
	c.other("config.stoa.dev", "stacks", "Stack", "dev", fields{"project": "web"})
}

// settle waits until nobody writes an object any more. A controller whose first look takes longer than the object is quiet is
// waited for, but not for ever: some objects never get a condition.
func (c *collection) settle(suffix string) *answer {
	a := c.do("GET", c.one(suffix), nil, quiet)
	for looks := range 40 {
		if !c.subject || !c.kind.written {
			break
		}
		time.Sleep(250 * time.Millisecond)
		before := a.rv()
		if a = c.do("GET", c.one(suffix), nil, quiet); a.rv() == before && (isObserved(a) || looks > 8) {
			break
		}
	}
	return a
}

// isObserved says whether a controller has written conditions about the object as it is.
func isObserved(a *answer) bool {
	conditions, _ := a.at("status", "conditions").([]any)
	for _, condition := range conditions {
		of, _ := condition.(map[string]any)
		if observed := of["observedGeneration"]; observed != nil && observed != a.at("metadata", "generation") {
			return false
		}
	}
	return len(conditions) > 0
}

// gone waits until an object that was deleted is gone: controllers take the finalizers away that they added, and those of the
// reference have none.
func (c *collection) gone(suffix string) {
	if !c.subject {
		c.release(c.do("GET", c.one(suffix), nil, quiet).json)
		return
	}
	for range 100 {
		if c.do("GET", c.one(suffix), nil, quiet).code == http.StatusNotFound {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	c.say("it is still there")
}

// release takes all finalizers of an object away.
func (c *collection) release(o map[string]any) {
	metadata, _ := o["metadata"].(map[string]any)
	if name, _ := metadata["name"].(string); metadata["finalizers"] != nil {
		c.do("PATCH", c.all()+"/"+name, `{"metadata":{"finalizers":null}}`, contentType(merge), quiet)
	}
}

// clean removes what a check made. What is left over would be told of by lists of everything.
func (c *collection) clean() {
	a := c.do("DELETE", c.own(""), nil, quiet)
	items, _ := a.at("items").([]any)
	for _, item := range items {
		if o, _ := item.(map[string]any); !c.subject {
			c.release(o)
		}
	}
	if c.subject && c.kind.before != nil {
		configuration := "/apis/config.stoa.dev/v1alpha1/namespaces/" + c.ns()
		for _, path := range []string{configuration + "/stacks/dev", "/apis/platform.stoa.dev/v1alpha1/workspaces/" + c.name("w"), configuration + "/projects/web"} {
			c.do("DELETE", path, nil, quiet)
		}
	}
}

// copied is a deep copy.
func copied(value any) any {
	var out any
	if err := json.Unmarshal(encode(value), &out); err != nil {
		panic(err)
	}
	return out
}
