//! The pod of a function.

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::image::Program;

/// The label of all pods of functions; its value is the process that made the pod.
pub(super) const LABEL: &str = "stoa.dev/function-runner";
/// The label whose value is the same for pods that serve the same: image by digest, command and limits.
pub(super) const FUNCTION: &str = "stoa.dev/function";
/// How long a pod exists at most, in seconds: the time of reuse, and a call.
const DEADLINE: u32 = 30 * 60;
/// The folder of the wrapper server.
const TOOLS: &str = "/wrapper-server-tools";
/// A user without rights.
const UNPRIVILEGED: u32 = 65_532;

/// What a pod is made of.
pub(super) struct Wanted<'a> {
    pub(super) image: &'a str,
    pub(super) program: &'a Program,
    /// The image with the wrapper server.
    pub(super) wrapper: &'a str,
    pub(super) instance: &'a str,
    /// Bytes.
    pub(super) memory: u64,
    /// The largest message, in bytes.
    pub(super) answer: usize,
    pub(super) port: u16,
}

/// The pod, without privileges, service account and writable files.
pub(super) fn pod(wanted: &Wanted<'_>) -> Pod {
    let Wanted { image, program, wrapper, instance, memory, answer, port } = wanted;
    let name = hash(image, 5);
    let security = json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]},
    });
    let resources = json!({
        "requests": {"cpu": "10m", "memory": "32Mi"},
        "limits": {"cpu": "1", "memory": memory.to_string(), "ephemeral-storage": "64Mi"},
    });
    let tools = json!([{"name": "tools", "mountPath": TOOLS}]);
    let mut command = vec![
        format!("{TOOLS}/wrapper-server"),
        format!("--port={port}"),
        format!("--max-request-body-size={answer}"),
        "--".to_owned(),
    ];
    command.extend(program.command.iter().cloned());
    let spec = json!({
        "restartPolicy": "Never",
        "activeDeadlineSeconds": DEADLINE,
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": UNPRIVILEGED,
            "runAsGroup": UNPRIVILEGED,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "initContainers": [{
            "name": "wrapper-server",
            "image": wrapper,
            "command": ["cp", "-a", "/wrapper-server/.", TOOLS],
            "securityContext": security,
            "resources": resources,
            "volumeMounts": tools,
        }],
        "containers": [{
            "name": "function",
            "image": program.image,
            "command": command,
            "securityContext": security,
            "resources": resources,
            "volumeMounts": [{"name": "tools", "mountPath": TOOLS, "readOnly": true}],
            "ports": [{"name": "grpc", "containerPort": port}],
            "readinessProbe": {"grpc": {"port": port}, "periodSeconds": 1},
        }],
        "volumes": [{"name": "tools", "emptyDir": {"sizeLimit": "64Mi"}}],
    });
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": format!("function-{name}-"),
            "labels": {
                LABEL: instance,
                FUNCTION: hash(&spec.to_string(), 16),
                "app.kubernetes.io/name": "stoa-function",
            },
            "annotations": {"stoa.dev/function-image": image},
        },
        "spec": spec,
    });
    serde_json::from_value(pod).expect("it has the form of a pod")
}

/// The first bytes of the hash of a text, in hexadecimal digits.
fn hash(text: &str, bytes: usize) -> String {
    Sha256::digest(text.as_bytes()).iter().take(bytes).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_has_no_privileges_and_has_limits() {
        let program = Program {
            image: "registry.example.com/fn/check@sha256:00".to_owned(),
            command: vec!["/usr/local/bin/function".to_owned(), "-v".to_owned()],
        };
        let pod = pod(&Wanted {
            image: "registry.example.com/fn/check:v1",
            program: &program,
            wrapper: "registry.example.com/wrapper:v1",
            instance: "a",
            memory: 1 << 30,
            answer: 1 << 20,
            port: 9446,
        });
        assert_eq!(pod.metadata.labels.unwrap()[LABEL], "a");
        let spec = pod.spec.unwrap();
        assert_eq!((spec.automount_service_account_token, spec.active_deadline_seconds), (Some(false), Some(1800)));
        assert_eq!(spec.security_context.unwrap().run_as_non_root, Some(true));
        for container in spec.init_containers.unwrap().iter().chain(&spec.containers) {
            let security = container.security_context.as_ref().unwrap();
            assert_eq!(security.allow_privilege_escalation, Some(false));
            assert_eq!(security.read_only_root_filesystem, Some(true));
            assert_eq!(security.capabilities.as_ref().unwrap().drop.as_deref(), Some(&["ALL".to_owned()][..]));
            let limits = container.resources.as_ref().unwrap().limits.as_ref().unwrap();
            assert_eq!(limits["memory"].0, "1073741824");
        }
        let function = &spec.containers[0];
        assert_eq!(function.image.as_deref(), Some("registry.example.com/fn/check@sha256:00"));
        let command = function.command.as_ref().unwrap();
        assert_eq!(
            command[1..],
            ["--port=9446", "--max-request-body-size=1048576", "--", "/usr/local/bin/function", "-v"]
        );
    }
}
