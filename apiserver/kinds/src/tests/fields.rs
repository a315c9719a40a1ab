//! What is wrong with objects, field by field, and which columns they have.

use super::*;

#[tokio::test]
async fn validation_reports_every_invalid_field() {
    let world = World::new().await;
    let config = "config.stoa.dev/v1alpha1";
    let cases = [
        (
            config,
            "Organization",
            "",
            json!({ "metadata": { "name": "kube-x" }, "spec": { "owners": [{ "kind": "Robot", "name": "" }] } }),
        ),
        (config, "Organization", "", json!({ "metadata": { "name": "a.b" }, "spec": {} })),
        (
            config,
            "Source",
            "shop",
            json!({ "metadata": { "name": "s" }, "spec": { "remote": "https://ann:secret@git.example.com/x.git", "pollInterval": "soon" } }),
        ),
        (
            config,
            "Source",
            "shop",
            json!({ "metadata": { "name": "s" }, "spec": { "remote": "/srv/config.git", "pullRequests": { "provider": "Gitea", "secretRef": { "name": "", "namespace": "x" } } } }),
        ),
        (
            config,
            "Source",
            "shop",
            json!({ "metadata": { "name": "s" }, "spec": { "remote": "git@git.example.com:shop/config.git", "pullRequests": { "provider": "Gitea", "url": "HTTP://localhost:3000" } } }),
        ),
        (
            config,
            "Source",
            "shop",
            json!({ "metadata": { "name": "s".repeat(64) }, "spec": { "remote": "https://git.example.com/config.git", "pullRequests": { "provider": "GitHub" } } }),
        ),
        (
            config,
            "Project",
            "shop",
            json!({ "metadata": { "name": "p" }, "spec": { "source": { "name": "" }, "path": "../up" } }),
        ),
        (
            config,
            "Stack",
            "shop",
            json!({ "metadata": { "name": "s" }, "spec": { "project": "none", "workspaces": ["a", "a"], "driftInterval": "1s", "trigger": "Apply" } }),
        ),
        (
            config,
            "Stack",
            "shop",
            json!({ "metadata": { "name": "s" }, "spec": { "project": "none", "generator": { "type": "Kustomize", "helm": { "name": "A b" } } } }),
        ),
        (
            "platform.stoa.dev/v1alpha1",
            "Workspace",
            "",
            json!({ "metadata": { "name": "w" }, "spec": { "backend": { "name": "b" }, "kubernetes": { "clusters": [{ "name": "a" }, { "name": "a", "inCluster": true }] } } }),
        ),
        (
            "platform.stoa.dev/v1alpha1",
            "Workspace",
            "",
            json!({ "metadata": { "name": "w" }, "spec": { "backend": { "name": "b" }, "kubernetes": { "clusters": [{ "name": "a", "inCluster": true }] },
                "gitops": { "repository": "file:///deploy.git" } } }),
        ),
        (
            "platform.stoa.dev/v1alpha1",
            "Workspace",
            "",
            json!({ "metadata": { "name": "w" }, "spec": { "backend": { "name": "b" }, "kubernetes": { "clusters": [{ "name": "a", "inCluster": true }] }, "modules": {
                "a": "0.1", "b": { "default": {} }, "c": { "path": "oci://me:secret@example.com/c", "version": "../1", "configs": {
                    "default": { "projectSelector": ["shop"] }, "large": {}, "small": { "projectSelector": [1] }, "other": 1,
                } },
                "d": { "path": "oci://ghcr.io:443/kusionstack/d", "version": "0.2.0+a", "configs": { "default": null } },
            } } }),
        ),
        (
            "platform.stoa.dev/v1alpha1",
            "Workspace",
            "",
            json!({ "metadata": { "name": "w" }, "spec": { "backend": { "name": "b" }, "kubernetes": { "clusters": [{ "name": "a", "inCluster": true }] }, "healthPolicies": [
                { "apiVersion": "example.com/v1", "kind": "Widget", "current": "status.phase == 'Running'" },
                { "apiVersion": "example.com/v2", "kind": "Widget", "current": " ", "failed": "request.name" },
                { "apiVersion": "", "kind": "", "current": "status.", "inProgress": "true" },
                { "apiVersion": "example.com", "kind": "Widget", "current": "true" },
            ] } }),
        ),
        (
            "platform.stoa.dev/v1alpha1",
            "Backend",
            "",
            json!({ "metadata": { "name": "b" }, "spec": { "type": "S3", "local": { "directory": "a/../b" } } }),
        ),
        (
            "platform.stoa.dev/v1alpha1",
            "Backend",
            "",
            json!({ "metadata": { "name": "b" }, "spec": { "type": "S3", "s3": { "bucket": "A", "prefix": "/a/../b", "region": "here?", "endpoint": "http://s3.example.com/docs" } } }),
        ),
        (
            "platform.stoa.dev/v1alpha1",
            "Backend",
            "",
            json!({ "metadata": { "name": "b" }, "spec": { "type": "OSS", "s3": { "bucket": "a.b", "credentialsSecretRef": { "name": "s3" } } } }),
        ),
        (
            "platform.stoa.dev/v1alpha1",
            "Backend",
            "",
            json!({ "metadata": { "name": "b" }, "spec": { "type": "OSS", "s3": { "bucket": "docs", "endpoint": "https://docs.oss-cn-hangzhou.aliyuncs.com", "credentialsSecretRef": { "namespace": "a", "name": "b" } } } }),
        ),
        (
            "platform.stoa.dev/v1alpha1",
            "Backend",
            "",
            json!({ "metadata": { "name": "b" }, "spec": { "type": "OSS", "s3": { "bucket": "docs", "endpoint": "http://127.0.0.1:9000", "credentialsSecretRef": { "namespace": "a", "name": "b" } } } }),
        ),
        (
            "platform.stoa.dev/v1alpha1",
            "Backend",
            "",
            json!({ "metadata": { "name": "b" }, "spec": { "type": "Local", "s3": { "bucket": "docs" } } }),
        ),
        (
            "platform.stoa.dev/v1alpha1",
            "Backend",
            "",
            json!({ "metadata": { "name": "b" }, "spec": { "type": "S3", "s3": { "bucket": "docs", "endpoint": "https://ann:secret@s3.example.com", "credentialsSecretRef": { "namespace": "a", "name": "b" } } } }),
        ),
    ];
    let mut told = Vec::new();
    for (api_version, kind, namespace, object) in cases {
        let error = world.make(api_version, kind, namespace, object).await.unwrap_err();
        assert_eq!(error.code(), 422, "{kind}: {error}");
        assert!(!error.message().contains("secret@"), "a password must not be repeated: {error}");
        told.extend(causes(&error).into_iter().map(|cause| format!("{kind} {cause}")));
    }
    insta::assert_snapshot!(told.join("\n"), @r#"
    Organization metadata.name: Invalid value: "kube-x": the name is reserved
    Organization spec.owners[0].name: Required value
    Organization spec.owners[0].kind: Unsupported value: "Robot": supported values: "Group", "ServiceAccount", "User"
    Organization metadata.name: Invalid value: "a.b": must be usable as the name of a namespace: at most 63 characters of a-z, 0-9 and '-', beginning and ending with a letter or digit
    Source spec.remote: Forbidden: the address must not contain a password; use secretRef
    Source spec.pollInterval: Invalid value: "soon": "soon" is not a duration such as 30s or 1h30m
    Source spec.pullRequests.url: Required value: the repository's address names no server; name its URL
    Source spec.pullRequests.secretRef.name: Required value
    Source spec.pullRequests.secretRef.namespace: Forbidden: the Secret must be in the object's own namespace
    Source spec.pullRequests.url: Forbidden: must be https
    Source metadata.name: Invalid value: "ssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssss": must be no more than 63 characters where pullRequests is set
    Source spec.remote: Forbidden: the repository's address does not end in <owner>/<name>, which spec.pullRequests needs
    Project spec.source.name: Required value
    Project spec.path: Invalid value: "../up": must be a relative path with '/' between its parts and without '..' and '.git'
    Stack spec.workspaces[1]: Duplicate value: "a"
    Stack spec.driftInterval: Invalid value: "1s": must be 0s, for never, or at least 10s
    Stack spec.project: Not found: "none"
    Stack spec.generator.helm: Forbidden: is only for the generators Helm and Auto; the type is Kustomize
    Stack spec.generator.helm.name: Invalid value: "A b": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
    Stack spec.project: Not found: "none"
    Workspace spec.kubernetes.clusters[1]: Duplicate value: {"name":"a"}
    Workspace spec.kubernetes.clusters[0].kubeconfigSecretRef: Required value: kubeconfigSecretRef or inCluster must be set
    Workspace spec.gitops: Forbidden: may not be set together with kubernetes; a workspace has either clusters or a repository
    Workspace spec.modules[a]: Invalid value: "<module>": must be a map with path and version
    Workspace spec.modules[b].default: Forbidden: is unknown; a module has path, module, version, configs, and configs has its configuration
    Workspace spec.modules[b].path: Required value
    Workspace spec.modules[b].version: Required value
    Workspace spec.modules[c].path: Invalid value: "<value>": must be a registry path without credentials, such as oci://ghcr.io/kusionstack/network
    Workspace spec.modules[c].version: Invalid value: "<value>": must be a version such as 0.2.0
    Workspace spec.modules[c].configs[default].projectSelector: Forbidden: the block default is for all projects
    Workspace spec.modules[c].configs[large].projectSelector: Required value: must list the projects of the patcher
    Workspace spec.modules[c].configs[other]: Invalid value: "<value>": must be a map
    Workspace spec.modules[c].configs[small].projectSelector: Invalid value: "<value>": must be a list of names of projects
    Workspace spec.healthPolicies[1]: Duplicate value: "Widget"
    Workspace spec.healthPolicies[1].current: Required value: must be an expression in CEL
    Workspace spec.healthPolicies[1].failed: Invalid value: "request.name": compilation failed: ERROR: <input>:1:1: undeclared reference to 'request' (in container '')
     | request.name
     | ^
    Workspace spec.healthPolicies[2].apiVersion: Required value
    Workspace spec.healthPolicies[2].kind: Required value
    Workspace spec.healthPolicies[2].current: Invalid value: "status.": compilation failed: ERROR: <input>:1:8: Syntax error: no viable alternative at input '.'
     | status.
     | .......^
    Workspace spec.healthPolicies[3].apiVersion: Invalid value: "example.com": must be <group>/<version>, or <version> for kinds without a group
    Backend spec.s3: Required value: must be set when type is S3 or OSS
    Backend spec.local: Forbidden: may only be set when type is Local
    Backend spec.local.directory: Invalid value: "a/../b": must not contain '..'
    Backend spec.s3.bucket: Invalid value: "A": must be 3 to 63 characters of a-z, 0-9, '-' and '.', beginning and ending with a letter or digit
    Backend spec.s3.prefix: Invalid value: "/a/../b": must be segments of letters, digits, '-', '_' and '.' with '/' in between, none beginning with '.'
    Backend spec.s3.region: Invalid value: "here?": must consist of a-z, 0-9 and '-'
    Backend spec.s3.endpoint: Invalid value: "http://s3.example.com/docs": must not have a path; set spec.s3.bucket and spec.s3.prefix instead
    Backend spec.s3.endpoint: Invalid value: "http://s3.example.com/docs": must be https, unless it is a loopback address
    Backend spec.s3.credentialsSecretRef: Required value
    Backend spec.s3.region: Required value: region or endpoint must be set
    Backend spec.s3.bucket: Invalid value: "a.b": must not contain '.' when type is OSS
    Backend spec.s3.credentialsSecretRef.namespace: Required value
    Backend spec.s3.endpoint: Invalid value: "https://docs.oss-cn-hangzhou.aliyuncs.com": must not contain the bucket, which precedes the host unless addressing is CustomDomain
    Backend spec.s3.endpoint: Invalid value: "http://127.0.0.1:9000": must not be an IP address, because the bucket precedes the host unless addressing is CustomDomain
    Backend spec.s3: Forbidden: may only be set when type is S3 or OSS
    Backend spec.s3.endpoint: Forbidden: must not contain credentials; use credentialsSecretRef
    "#);
}

/// What is wrong with the address of a new Source's repository, and with that of a new Workspace's.
async fn wrong_address(world: &World, user: &str, name: &str, address: &str) -> [Vec<String>; 2] {
    let user = UserInfo { name: user.to_owned(), ..UserInfo::default() };
    let context = RequestContext::new(user, Arc::new(stoa_machinery::auth::AllowAll));
    let metadata = json!({ "name": name });
    let source = json!({ "metadata": metadata, "spec": { "remote": address } });
    let gitops = json!({ "backend": { "name": "default" }, "gitops": { "repository": address } });
    let workspace = json!({ "metadata": metadata, "spec": gitops });
    let source = world.make_as(&context, "config.stoa.dev/v1alpha1", "Source", "shop", source).await;
    let workspace = world.make_as(&context, "platform.stoa.dev/v1alpha1", "Workspace", "", workspace).await;
    [source, workspace].map(|made| made.map_or_else(|error| causes(&error), |_| Vec::new()))
}

#[tokio::test]
async fn address_of_a_repository_holds_no_token() {
    let world = World::new().await;
    let message = "Forbidden: the address must not contain a query, or a user outside ssh://, because either may be a \
                   token; use secretRef";
    for address in [
        "https://hunter2@git.example.com/shop/config.git",
        "HTTP://hunter2@git.example.com/shop/config.git",
        "git://hunter2@git.example.com/shop/config.git",
        "https://git.example.com/shop/config.git?private_token=hunter2",
        "https://git.example.com?private_token=hunter2",
    ] {
        let expected = ["spec.remote", "spec.gitops.repository"].map(|field| vec![format!("{field}: {message}")]);
        assert_eq!(wrong_address(&world, "ann", "a", address).await, expected, "{address}");
    }
    for (i, address) in [
        "https://git.example.com/shop/con@fig.git",
        "ssh://git@git.example.com:2222/shop/config.git",
        "git@git.example.com:shop/config.git",
        "file:///srv/what?/con@fig.git",
        "/srv/config.git",
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(wrong_address(&world, "ann", &format!("n{i}"), address).await, [[""; 0]; 2], "{address}");
    }
}

#[tokio::test]
async fn old_invalid_address_stays_until_changed() {
    let world = World::new().await;
    let with = |user: &str| format!("https://{user}@git.example.com/shop/config.git");
    let made = wrong_address(&world, "stoa:git:control", "old", &with("bot")).await;
    assert_eq!(made, [[""; 0]; 2], "it is made again of its file");

    let sources = world.registry.api::<stoa_types::Source>();
    let describe = |source: &mut stoa_types::Source| source.spec.description = Some("Of old".to_owned());
    sources.update_with("shop", "old", describe).await.unwrap();
    let change = |source: &mut stoa_types::Source| source.spec.remote = with("hunter2");
    assert_eq!(sources.update_with("shop", "old", change).await.unwrap_err().code(), 422);

    let workspaces = world.registry.api::<stoa_types::Workspace>();
    let describe = |workspace: &mut stoa_types::Workspace| workspace.spec.description = Some("Of old".to_owned());
    workspaces.update_with("", "old", describe).await.unwrap();
    let change = |workspace: &mut stoa_types::Workspace| {
        workspace.spec.gitops.as_mut().unwrap().repository = with("hunter2");
    };
    assert_eq!(workspaces.update_with("", "old", change).await.unwrap_err().code(), 422);
}

#[tokio::test]
async fn names_that_make_no_label_are_refused() {
    let world = World::new().await;
    let name = "n".repeat(64);
    let expected = format!("metadata.name: Invalid value: \"{name}\": must be no more than 63 characters");
    let kinds = [
        ("config.stoa.dev/v1alpha1", "Project", "shop", json!({ "source": { "name": "main" }, "path": "p" })),
        ("config.stoa.dev/v1alpha1", "Stack", "shop", json!({ "project": "p" })),
        ("platform.stoa.dev/v1alpha1", "Workspace", "", json!({ "backend": { "name": "b" } })),
        ("platform.stoa.dev/v1alpha1", "Backend", "", json!({ "type": "Local", "local": { "directory": "d" } })),
    ];
    for (api_version, kind, namespace, spec) in kinds {
        let object = json!({ "metadata": { "name": name }, "spec": spec });
        let error = world.make(api_version, kind, namespace, object).await.unwrap_err();
        assert_eq!(error.code(), 422, "{kind}: {error}");
        assert!(causes(&error).contains(&expected), "{kind}: {error}");
    }
}

#[tokio::test]
async fn columns_have_the_types_of_what_they_show() {
    let world = World::new().await;
    let mut checked = 0;
    for store in world.registry.stores() {
        let definition = store.definition();
        for column in &definition.columns {
            let stoa_machinery::definition::Cell::Path(path) = column.cell else { continue };
            let mut schema = &*definition.schema;
            for field in path {
                schema = &schema["properties"][field];
            }
            // Labels are texts, and the schema of a kind has no metadata.
            if path[0] == "metadata" {
                assert_eq!(column.kind, "string", "{} {}", definition.plural, column.name);
                continue;
            }
            assert_eq!(schema["type"], column.kind, "{} {}", definition.plural, column.name);
            checked += 1;
        }
    }
    assert!(checked > 20, "{checked}");
}

#[tokio::test]
async fn resource_shows_its_cluster_where_there_is_room() {
    let world = World::new().await;
    let store = world.registry.store("delivery.stoa.dev", "v1alpha1", "resources").unwrap();
    let column = store.definition().columns.iter().find(|column| column.name == "Cluster").unwrap();
    let stoa_machinery::definition::Cell::Path(path) = column.cell else { panic!("{column:?}") };
    let object = Object(json!({ "spec": { "kubernetes": { "cluster": "east" } } }).as_object().unwrap().clone());
    assert_eq!((object.get_path(path), column.priority), (Some(&json!("east")), 1));
}
