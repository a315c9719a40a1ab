//! Wrong settings, packages and providers: each error says of which provider, and what to do.

use std::path::Path;
use std::time::Duration;

use stoa_proto::ProviderSecrets;

use super::bed::{Bed, Scene, locked, provider};
use crate::failure::sentence;

#[tokio::test]
async fn wrong_settings_name_the_field() {
    let bed = Bed::new();
    let problem = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut scene = bed.scene("a");
        change(&mut scene.spec);
        let failure = scene.providers().expect_err("the settings are wrong");
        sentence(&failure.problems()[0])
    };
    assert_eq!(
        problem(&|spec| spec["mirror"] = serde_json::json!({})),
        "spec.terraform.mirror: is missing; set directory, url or repositoryTemplate"
    );
    assert_eq!(
        problem(&|spec| spec["mirror"]["url"] = "https://mirror.example.com/".into()),
        "spec.terraform.mirror: has several of directory, url and repositoryTemplate; remove all but one"
    );
    for folder in ["/etc", "mirrors/mirror", &format!("{}/../..", bed.mirror().display())] {
        let message = problem(&|spec| spec["mirror"]["directory"] = folder.into());
        assert!(message.starts_with("spec.terraform.mirror.directory: "), "{message}");
        assert!(message.contains("--provider-mirrors"), "{message}");
    }
    let lock = problem(&|spec| spec["lock"] = "provider \"x\" {\n}\n".into());
    assert_eq!(lock, "spec.terraform.lock: the lock file has no version of registry.terraform.io/hashicorp/x");
    let source = problem(&|spec| spec["providers"] = serde_json::json!([{"name": "x", "source": "../x"}]));
    assert!(source.starts_with("spec.terraform.providers[name=x].source: \"../x\" is not the address"), "{source}");
    let twice = problem(&|spec| {
        let entries =
            [("a", "x"), ("b", "hashicorp/x")].map(|(name, of)| serde_json::json!({"name": name, "source": of}));
        spec["providers"] = entries.to_vec().into();
    });
    assert!(twice.ends_with("is the provider of entry \"a\" too; a provider has one entry"), "{twice}");
}

#[tokio::test]
async fn locks_decide_the_version() {
    let bed = Bed::new();
    bed.script("x", "exit 0");
    let mut scene = bed.scene("a");
    let (message, passes) = scene.failure("y").await;
    let expected = "provider registry.terraform.io/hashicorp/y is not in spec.terraform.lock of workspace dev; add its block \
                    from the .terraform.lock.hcl that `terraform providers lock` writes";
    assert_eq!((message.as_str(), passes), (expected, false));
    assert_eq!(scene.field("y").await.as_deref(), Some("extensions.provider"));
    scene.version = Some("1.2.0");
    let (message, passes) = scene.failure("x").await;
    let expected = "the resource names version 1.2.0 of provider registry.terraform.io/hashicorp/x, and \
                    spec.terraform.lock of workspace dev has version 1.0.0; use the same version in both";
    assert_eq!((message.as_str(), passes), (expected, false));
}

#[tokio::test]
async fn lock_of_the_source_counts_where_the_workspace_has_none() {
    let bed = Bed::new();
    let hash = bed.script("x", "exit 3");
    let hashes = [hash.to_string()];
    let scene = || bed.scene("a").with_source_lock("1.0.0", &hashes);
    // It is installed, and ends.
    let (message, _) = scene().failure("x").await;
    assert!(message.contains("x 1.0.0 ended before it accepted calls"), "{message}");
    let failure =
        async |version: &str, hashes: &[String]| bed.scene("a").with_source_lock(version, hashes).failure("x").await.0;
    let message = failure("", &[]).await;
    let start =
        "provider registry.terraform.io/hashicorp/x is not in apps/.terraform.lock.hcl of the source; add its block";
    assert!(message.starts_with(start), "{message}");
    let message = failure("1.0.0", &["zh:12".to_owned()]).await;
    assert!(message.contains("x in apps/.terraform.lock.hcl of the source: a checksum is wrong"), "{message}");
    let mut other = scene();
    other.version = Some("1.2.0");
    let (message, _) = other.failure("x").await;
    assert!(message.contains("and apps/.terraform.lock.hcl of the source has version 1.0.0"), "{message}");
    let decides = |scene: Scene<'_>| scene.lock("x").map(|lock| (lock.version, lock.by));
    let of_source = ("1.0.0".to_owned(), "apps/.terraform.lock.hcl".to_owned());
    assert_eq!(decides(scene()), Some(of_source));
    let mut of_workspace = scene();
    of_workspace.spec["lock"] = locked("x", "2.0.0", &hashes).into();
    assert_eq!(decides(of_workspace), Some(("2.0.0".to_owned(), "spec.terraform.lock of workspace dev".to_owned())));
    assert_eq!(decides(bed.scene("a").with_lock("")), None);
    // The lock of the workspace decides alone.
    let mut both = scene();
    both.spec["lock"] = locked("y", "1.0.0", &hashes).into();
    let (message, _) = both.failure("x").await;
    assert!(message.contains("is not in spec.terraform.lock of workspace dev"), "{message}");
    let (message, _) = bed.scene("a").with_lock("").failure("x").await;
    assert!(
        message.contains("has no lock: workspace dev has no spec.terraform.lock, and the source has no"),
        "{message}"
    );
}

#[tokio::test]
async fn wrong_packages_are_not_started() {
    let bed = Bed::new();
    let marker = bed.caches().with_file_name("started");
    let hash = bed.script("x", &format!("touch {}", marker.display()));
    bed.unpacked_for("plan9_386", "other", "1.0.0", Path::new("/bin/true"));
    let zero = &["h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=".to_owned()];
    for (provider, lock, expected) in [
        ("x", locked("x", "1.0.0", zero), vec!["checksum", "compare the mirror with the lock file"]),
        ("x", locked("x", "1.0.0", &[]), vec!["no checksum", &hash.to_string(), "record an h1 checksum"]),
        ("x", locked("x", "1.0.1", zero), vec!["has no version", "it has 1.0.0", "add the package to the mirror"]),
        ("missing", locked("missing", "1.0.0", zero), vec!["it has none", "add the package to the mirror"]),
        ("other", locked("other", "1.0.0", zero), vec!["not for ", "add the package of this platform"]),
    ] {
        let (message, passes) = bed.scene("a").with_lock(&lock).failure(provider).await;
        let start = format!("provider registry.terraform.io/hashicorp/{provider} 1.0.");
        assert!(message.starts_with(&start) && !passes, "{message}");
        assert!(expected.iter().all(|text| message.contains(text)), "{message}");
    }
    assert!(!marker.exists());
}

#[tokio::test]
async fn providers_that_do_not_start_name_the_reason() {
    let bed = Bed::with_start_limit(Duration::from_secs(5));
    let token = "hunter2-token";
    for (name, script, expected) in [
        (
            "ends",
            "echo \"no $TOKEN\" >&2; exit 3",
            vec!["ended before it accepted calls (exit status: 3)", "no (sensitive)"],
        ),
        ("hangs", "echo starting >&2; exec sleep 60", vec!["accepted no calls within 5 s", "starting"]),
        ("speaks", "echo hello; exec sleep 60", vec!["speaks no known protocol", "hello"]),
        (
            "old",
            r#"echo "1|4|unix|$TMPDIR/plugin1|grpc|"; exec sleep 60"#,
            vec!["version 4", "use a version of it for Terraform"],
        ),
        ("deaf", r#"echo "1|5|unix|$TMPDIR/plugin1|grpc|"; exec sleep 60"#, vec!["accepts no connection"]),
    ] {
        bed.script(name, script);
        let mut scene = bed.scene("a").with_configuration(name, "{}");
        let environment = [("TOKEN".to_owned(), token.into())].into();
        let secrets = ProviderSecrets { environment, ..Default::default() };
        scene.workspace.provider_secrets.insert(name.to_owned(), secrets);
        let (message, passes) = scene.failure(name).await;
        assert!(message.starts_with(&format!("provider registry.terraform.io/hashicorp/{name} 1.0.0 ")), "{message}");
        assert!(!passes && expected.iter().all(|text| message.contains(text)), "{message}");
        assert!(!message.contains(token), "{message}");
    }
}

#[tokio::test]
async fn wrong_configurations_name_the_argument() {
    let Some(executable) = provider("frame") else { return };
    let bed = Bed::new();
    bed.unpacked("frame", "1.0.0", &executable);
    let of_workspace = bed.scene("a").with_configuration("frame", r#"{"folder":[1]}"#);
    let (message, passes) = of_workspace.failure("frame").await;
    assert!(!passes && message.contains("spec.terraform.providers[name=frame].configuration.folder: "), "{message}");
    assert_eq!(of_workspace.field("frame").await, None);
    let of_resource = bed.scene("a").of_resource(r#"{"other":"x"}"#);
    let (message, _) = of_resource.failure("frame").await;
    assert!(message.contains("cannot be configured: extensions.providerMeta.other: unknown argument"), "{message}");
    assert_eq!(of_resource.field("frame").await.as_deref(), Some("extensions.providerMeta.other"));
}

#[tokio::test]
async fn rejected_configurations_are_redacted() {
    let Some(executable) = provider("tls") else { return };
    let bed = Bed::new();
    bed.unpacked("tls", "4.0.4", &executable);
    let mut scene = bed.scene("a").with_configuration("tls", r#"{"proxy":[{"url":"ftp://hunter2-secret"}]}"#);
    let (message, passes) = scene.failure("tls").await;
    assert!(
        !passes && message.contains("rejects its configuration") && message.contains("hunter2-secret"),
        "{message}"
    );
    assert!(message.contains("spec.terraform.providers[name=tls].configuration.proxy"), "{message}");
    let environment = [("TOKEN".to_owned(), "hunter2-secret".into())].into();
    let secrets = ProviderSecrets { environment, ..Default::default() };
    scene.workspace.provider_secrets.insert("tls".to_owned(), secrets);
    let (message, _) = scene.failure("tls").await;
    assert!(message.contains("(sensitive)") && !message.contains("hunter2"), "{message}");
}

#[tokio::test]
async fn wrong_secrets_name_the_key() {
    let bed = Bed::new();
    for (name, value, is_environment) in
        [("A=B", "x", true), ("", "x", true), ("A", "x\0y", true), ("token", "\u{0}", true)]
    {
        let mut scene = bed.scene("a").with_configuration("x", "{}");
        let values = [(name.to_owned(), value.into())].into();
        let secrets = ProviderSecrets { environment: values, ..Default::default() };
        scene.workspace.provider_secrets.insert("x".to_owned(), secrets);
        let failed = format!("{:?}", scene.configured("x").err().expect("the key is wrong"));
        assert!(failed.contains("in the environment Secret of provider") && is_environment, "{failed}");
    }
    let mut scene = bed.scene("a").with_configuration("x", "{}");
    let values = [("token".to_owned(), b"\xff"[..].into())].into();
    let secrets = ProviderSecrets { configuration: values, ..Default::default() };
    scene.workspace.provider_secrets.insert("x".to_owned(), secrets);
    let failed = format!("{:?}", scene.configured("x").err().expect("the value is no text"));
    assert!(failed.contains("is no text"), "{failed}");
}
