//! The client against a module in Go, which `STOA_TEST_MODULES` names (`tests/modules`).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use stoa_kusion_module::module::{Module, ModuleError, Options};
use stoa_kusion_module::proto::GeneratorRequest;
use stoa_terraform_provider::process::DirectLauncher;

const PATIENCE: Duration = Duration::from_secs(60);

fn options(executable: PathBuf) -> Options {
    let (digest, environment, temporary) = ([0; 32], Vec::new(), std::env::temp_dir());
    Options { executable, digest, environment, temporary, time_limit: PATIENCE }
}

/// The module, which runs without a sandbox here; nothing without it.
async fn start() -> Option<Module> {
    let Some(program) = std::env::var_os("STOA_TEST_MODULES") else {
        eprintln!("skipped: STOA_TEST_MODULES is not set; see CONTRIBUTING.md");
        return None;
    };
    Some(Module::start(&DirectLauncher, &options(program.into())).await.unwrap())
}

fn request(accessory: &str) -> GeneratorRequest {
    GeneratorRequest {
        project: "shop".to_owned(),
        stack: "prod".to_owned(),
        app: "web".to_owned(),
        dev_config: accessory.to_owned().into(),
        platform_config: "{\"type\": \"LoadBalancer\"}".into(),
        ..GeneratorRequest::default()
    }
}

#[tokio::test]
async fn answers_have_resources_and_a_patcher() {
    let Some(mut module) = start().await else { return };
    for _ in 0..2 {
        let response = module.generate(request("{\"ports\": [{\"port\": 80}]}"), PATIENCE).await.unwrap();
        assert_eq!(response.resources.len(), 1);
        let text = String::from_utf8(response.resources[0].to_vec()).unwrap();
        assert!(
            text.contains("id: v1:Service:shop:shop-prod-web\n") && text.contains("type: LoadBalancer\n"),
            "{text}"
        );
        assert!(String::from_utf8_lossy(&response.patcher).contains("network: \"on\"\n"));
    }
    module.end().await;
}

#[tokio::test]
async fn errors_of_a_module_leave_it_running() {
    let Some(mut module) = start().await else { return };
    let error = module.generate(request("{\"do\": \"reject\"}"), PATIENCE).await.unwrap_err();
    assert!(matches!(&error, ModuleError::Rejected(message) if message == "ports must not be empty"), "{error:?}");
    let response = module.generate(request("{\"do\": \"nothing\"}"), PATIENCE).await.unwrap();
    assert!(response.resources.is_empty() && response.patcher.is_empty());
}

#[tokio::test]
async fn crash_quotes_the_reason() {
    let Some(mut module) = start().await else { return };
    let error = module.generate(request("{\"do\": \"crash\"}"), PATIENCE).await.unwrap_err().to_string();
    assert!(
        error.starts_with("it ended before it answered (exit status: 2): panic: a test wants this module to end"),
        "{error}"
    );
}

#[tokio::test]
async fn slow_module_is_given_up() {
    let Some(mut module) = start().await else { return };
    let start = Instant::now();
    let error = module.generate(request("{\"do\": \"sleep\"}"), Duration::from_secs(1)).await.unwrap_err();
    assert!(matches!(error, ModuleError::TookTooLong(_)) && start.elapsed() < Duration::from_secs(20), "{error:?}");
}

#[tokio::test]
async fn other_programs_are_no_modules() {
    let error = Module::start(&DirectLauncher, &options("/bin/echo".into())).await.unwrap_err();
    assert!(matches!(&error, ModuleError::NoModule(_)), "{error:?}");
    let error = Module::start(&DirectLauncher, &options("/bin/true".into())).await.unwrap_err();
    assert!(matches!(&error, ModuleError::Ended { .. }), "{error:?}");
    let error = Module::start(&DirectLauncher, &options("/none".into())).await.unwrap_err();
    assert!(matches!(&error, ModuleError::Start(_)), "{error:?}");
}
