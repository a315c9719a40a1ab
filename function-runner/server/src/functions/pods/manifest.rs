//! The pod of a function.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use kube::ResourceExt as _;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::image::Program;

/// The label of all pods of functions; its value is the process that made the pod.
pub(super) const LABEL: &str = "stoa.dev/function-runner";
/// The label whose value is the same for pods that serve the same: image by digest, command and limits.
const FUNCTION: &str = "stoa.dev/function";
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

/// Whether a pod of the cluster serves the same as the wanted one. Its spec has to say so as well: everybody who may create pods in
/// the namespace can write the label.
pub(super) fn is_same(found: &Pod, wanted: &Pod) -> bool {
    let programs = |pod: &Pod| pod.spec.as_ref().map(programs);
    found.labels().get(FUNCTION) == wanted.labels().get(FUNCTION) && programs(found) == programs(wanted)
}

/// The part of a spec that decides which programs run. A cluster adds defaults to the rest.
fn programs(spec: &PodSpec) -> PodSpec {
    let program = |container: &Container| {
        let Container { name, image, command, args, env, env_from, lifecycle, volume_mounts, working_dir, .. } =
            container.clone();
        Container {
            name,
            image,
            command,
            args,
            env,
            env_from,
            lifecycle,
            volume_mounts,
            working_dir,
            ..Container::default()
        }
    };
    let of = |containers: &[Container]| containers.iter().map(program).collect::<Vec<_>>();
    PodSpec {
        init_containers: spec.init_containers.as_deref().map(of),
        containers: of(&spec.containers),
        ephemeral_containers: spec.ephemeral_containers.clone(),
        volumes: spec.volumes.clone(),
        host_network: spec.host_network,
        host_pid: spec.host_pid,
        share_process_namespace: spec.share_process_namespace,
        ..PodSpec::default()
    }
}

/// The first bytes of the hash of a text, in hexadecimal digits.
fn hash(text: &str, bytes: usize) -> String {
    Sha256::digest(text.as_bytes()).iter().take(bytes).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn check() -> Pod {
        let program = Program {
            image: "registry.example.com/fn/check@sha256:00".to_owned(),
            command: vec!["/usr/local/bin/function".to_owned(), "-v".to_owned()],
        };
        pod(&Wanted {
            image: "registry.example.com/fn/check:v1",
            program: &program,
            wrapper: "registry.example.com/wrapper:v1",
            instance: "a",
            memory: 1 << 30,
            answer: 1 << 20,
            port: 9446,
        })
    }

    #[test]
    fn pod_of_somebody_else_is_another_one() {
        let with = |pointer: &str, field: &str, value: Value| {
            let mut pod = serde_json::to_value(check()).unwrap();
            pod.pointer_mut(pointer).unwrap()[field] = value;
            serde_json::from_value::<Pod>(pod).unwrap()
        };
        // The defaults of a cluster.
        for (pointer, field, value) in [
            ("/metadata", "name", json!("function-1")),
            ("/spec", "nodeName", json!("node")),
            ("/spec", "serviceAccountName", json!("default")),
            ("/spec/containers/0", "imagePullPolicy", json!("IfNotPresent")),
            ("/spec/containers/0/resources/limits", "memory", json!("1Gi")),
            ("/spec/containers/0/ports/0", "protocol", json!("TCP")),
        ] {
            assert!(is_same(&with(pointer, field, value), &check()), "{pointer}/{field}");
        }
        let image = json!("registry.example.com/other:v1");
        let container = json!({"name": "other", "image": image});
        let both = json!([check().spec.unwrap().containers[0], container]);
        for (pointer, field, value) in [
            ("/metadata/labels", FUNCTION, json!("other")),
            ("/spec/containers/0", "image", image.clone()),
            ("/spec/initContainers/0", "image", image.clone()),
            ("/spec/containers/0", "args", json!(["-o"])),
            ("/spec/containers/0", "command", json!(["/other"])),
            ("/spec/containers/0", "env", json!([{"name": "LD_PRELOAD", "value": "/other.so"}])),
            ("/spec/containers/0", "lifecycle", json!({"postStart": {"exec": {"command": ["/other"]}}})),
            ("/spec", "containers", both),
            ("/spec", "volumes", json!([{"name": "tools", "hostPath": {"path": "/other"}}])),
            ("/spec", "hostNetwork", json!(true)),
        ] {
            assert!(!is_same(&with(pointer, field, value), &check()), "{pointer}/{field}");
        }
    }

    #[test]
    fn pod_has_no_privileges_and_has_limits() {
        let pod = check();
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
