//! The containers of a workload, as Kubernetes has them.

use serde_json::{Map, Value as Json, json};
use stoa_kcl::Value;

use super::fields::{Fields, Read, Wrong};

/// The fields of a container.
const CONTAINER: [&str; 12] = [
    "image",
    "command",
    "args",
    "env",
    "workingDir",
    "resources",
    "files",
    "dirs",
    "readinessProbe",
    "livenessProbe",
    "startupProbe",
    "lifecycle",
];
const PROBES: [&str; 3] = ["readinessProbe", "livenessProbe", "startupProbe"];
/// The numbers of a probe, which Kubernetes calls the same.
const OF_PROBES: [&str; 6] = [
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
    "terminationGracePeriodSeconds",
];
/// The beginning of a reference to a key of a Secret.
const SECRET: &str = "secret://";

/// The parts of a Pod.
#[derive(Debug, Default)]
pub(super) struct Pod {
    pub(super) containers: Vec<Json>,
    pub(super) volumes: Vec<Json>,
    /// The names and data of ConfigMaps with files.
    pub(super) config_maps: Vec<(String, Json)>,
}

impl Pod {
    /// Reads the containers of a workload, sorted by name. Their files have names that begin with `unique`.
    pub(super) fn of(workload: &Fields<'_>, unique: &str) -> Read<Self> {
        let mut pod = Self::default();
        for (name, container) in workload.sorted("containers")? {
            let container = pod.container(name, &container, unique)?;
            pod.containers.push(container);
        }
        if pod.containers.is_empty() {
            return Err(workload.wrong("containers", "has no container"));
        }
        Ok(pod)
    }

    /// The template of the Pod.
    pub(super) fn template(&self, metadata: &Json, restart: Option<&str>) -> Json {
        let mut spec = json!({"containers": self.containers});
        if !self.volumes.is_empty() {
            spec["volumes"] = self.volumes.clone().into();
        }
        if let Some(policy) = restart {
            spec["restartPolicy"] = policy.into();
        }
        json!({"metadata": metadata, "spec": spec})
    }

    fn container(&mut self, name: &str, fields: &Fields<'_>, unique: &str) -> Read<Json> {
        fields.only(&CONTAINER)?;
        let image = fields.text("image")?.ok_or_else(|| fields.wrong("image", "is required"))?;
        let mut container = Map::from_iter([("name".to_owned(), name.into()), ("image".to_owned(), image.into())]);
        for field in ["command", "args", "workingDir"] {
            container.extend(fields.json(field).map(|value| (field.to_owned(), value)));
        }
        let environment = fields.texts("env")?;
        if !environment.is_empty() {
            let variables = environment.into_iter().map(|(name, value)| variable(fields, name, value));
            container.insert("env".to_owned(), variables.collect::<Read<Json>>()?);
        }
        if let Some(resources) = resources(fields)? {
            container.insert("resources".to_owned(), resources);
        }
        for field in PROBES {
            if let Some(probe) = fields.map(field)? {
                container.insert(field.to_owned(), self::probe(&probe)?);
            }
        }
        if let Some(lifecycle) = fields.map("lifecycle")? {
            lifecycle.only(&["preStop", "postStart"])?;
            let handlers = ["preStop", "postStart"].map(|hook| {
                Ok(lifecycle.map(hook)?.map(|it| handler(&it)).transpose()?.map(|it| (hook.to_owned(), it)))
            });
            let handlers: Map<String, Json> =
                handlers.into_iter().filter_map(Result::transpose).collect::<Read<_>>()?;
            container.insert("lifecycle".to_owned(), handlers.into());
        }
        let mut mounts = self.files(name, fields, unique)?;
        mounts.extend(self.folders(fields)?);
        if !mounts.is_empty() {
            container.insert("volumeMounts".to_owned(), mounts.into());
        }
        Ok(container.into())
    }

    fn files(&mut self, container: &str, fields: &Fields<'_>, unique: &str) -> Read<Vec<Json>> {
        let mut mounts = Vec::new();
        for (number, (path, file)) in fields.sorted("files")?.into_iter().enumerate() {
            file.only(&["content", "contentFrom", "mode"])?;
            let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
            if name.is_empty() {
                return Err(file.wrong("", "must end with the name of the file"));
            }
            let mode = file.text("mode")?.map(|mode| mode_of(&file, mode)).transpose()?;
            match (file.text("content")?, file.text("contentFrom")?) {
                (Some(content), None) => {
                    let volume = format!("{unique}-{container}-{number}");
                    self.volume(&volume, "configMap", "name", &volume, mode);
                    self.config_maps.push((volume.clone(), json!({name: content})));
                    let folder = if folder.is_empty() { "/" } else { folder };
                    mounts.push(json!({"name": volume, "mountPath": folder}));
                }
                (None, Some(from)) => {
                    let Some((secret, Some(key))) = secret(from) else {
                        return Err(file.wrong("contentFrom", "must be secret://NAME/KEY"));
                    };
                    self.volume(secret, "secret", "secretName", secret, mode);
                    let path = format!("/{}", path.trim_start_matches('/'));
                    mounts.push(json!({"name": secret, "mountPath": path, "subPath": key}));
                }
                _ => return Err(file.wrong("", "must have either content or contentFrom")),
            }
        }
        Ok(mounts)
    }

    fn folders(&mut self, fields: &Fields<'_>) -> Read<Vec<Json>> {
        let mut folders = fields.texts("dirs")?;
        folders.sort_unstable();
        let mut mounts = Vec::new();
        for (path, from) in folders {
            let Some((secret, None)) = secret(from) else {
                return Err(fields.wrong(&format!("dirs.{path}"), "must be secret://NAME"));
            };
            self.volume(secret, "secret", "secretName", secret, None);
            mounts.push(json!({"name": secret, "mountPath": format!("/{}", path.trim_start_matches('/'))}));
        }
        Ok(mounts)
    }

    /// Adds a volume, unless there is one of this name.
    fn volume(&mut self, name: &str, kind: &str, field: &str, object: &str, mode: Option<u32>) {
        if self.volumes.iter().any(|volume| volume["name"] == name) {
            return;
        }
        let mut source = Map::from_iter([(field.to_owned(), object.into())]);
        source.extend(mode.map(|mode| ("defaultMode".to_owned(), mode.into())));
        self.volumes.push(json!({"name": name, kind: source}));
    }
}

fn variable(fields: &Fields<'_>, name: &str, value: &str) -> Read<Json> {
    match secret(value) {
        None => Ok(json!({"name": name, "value": value})),
        Some((secret, Some(key))) => {
            Ok(json!({"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}))
        }
        Some((_, None)) => Err(fields.wrong(&format!("env.{name}"), "must be secret://NAME/KEY")),
    }
}

/// The Secret and the key of `secret://NAME/KEY`, or of `${secret://NAME/KEY}`.
fn secret(text: &str) -> Option<(&str, Option<&str>)> {
    let inner = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')).unwrap_or(text);
    let (name, key) = inner.strip_prefix(SECRET).map(|rest| rest.split_once('/').unwrap_or((rest, "")))?;
    Some((name, Some(key.split('/').next().unwrap_or_default()).filter(|key| !key.is_empty())))
}

/// A limit such as `500m`, or a request and a limit such as `250m-500m`.
fn resources(fields: &Fields<'_>) -> Read<Option<Json>> {
    let texts = fields.texts("resources")?;
    let (mut requests, mut limits) = (Map::new(), Map::new());
    for (name, text) in texts {
        let (request, limit) = match text.split_once('-') {
            Some((request, limit)) => (Some(request), limit),
            None => (None, text),
        };
        if limit.is_empty() || limit.contains('-') || request == Some("") {
            let message = "must be a limit such as 500m, or a request and a limit such as 250m-500m";
            return Err(fields.wrong(&format!("resources.{name}"), message));
        }
        requests.extend(request.map(|request| (name.to_owned(), request.into())));
        limits.insert(name.to_owned(), limit.into());
    }
    let all = [("requests", requests), ("limits", limits)].into_iter().filter(|(_, map)| !map.is_empty());
    let all: Map<String, Json> = all.map(|(name, map)| (name.to_owned(), map.into())).collect();
    Ok((!all.is_empty()).then(|| all.into()))
}

fn probe(fields: &Fields<'_>) -> Read<Json> {
    fields.only(&[&["probeHandler"], OF_PROBES.as_slice()].concat())?;
    let handled = fields.map("probeHandler")?.ok_or_else(|| fields.wrong("probeHandler", "is required"))?;
    let mut probe = handler(&handled)?;
    for field in OF_PROBES {
        if let Some(number) = fields.integer(field)? {
            probe[field] = number.into();
        }
    }
    Ok(probe)
}

/// A request, a command or a connection.
fn handler(fields: &Fields<'_>) -> Read<Json> {
    match fields.kind() {
        "Http" => {
            fields.only(&["url", "headers"])?;
            let wrong = || fields.wrong("url", "must be a URL with a port, such as http://localhost:80/healthz");
            let url = fields.text("url")?.ok_or_else(wrong)?;
            let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
            let (address, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
            let (host, port) = address_of(address).ok_or_else(wrong)?;
            let mut get = json!({"path": path, "port": port, "scheme": scheme.to_uppercase()});
            if let Some(host) = host {
                get["host"] = host.into();
            }
            let headers = fields.texts("headers")?;
            if !headers.is_empty() {
                get["httpHeaders"] =
                    headers.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
            }
            Ok(json!({"httpGet": get}))
        }
        "Exec" => {
            fields.only(&["command"])?;
            let command = fields.json("command").ok_or_else(|| fields.wrong("command", "is required"))?;
            Ok(json!({"exec": {"command": command}}))
        }
        "Tcp" => {
            fields.only(&["url"])?;
            let wrong = || fields.wrong("url", "must be a host and a port, such as localhost:1234");
            let url = fields.text("url")?.ok_or_else(wrong)?;
            let (host, port) = address_of(url.rsplit("://").next().unwrap_or(url)).ok_or_else(wrong)?;
            let mut socket = json!({"port": port});
            if let Some(host) = host {
                socket["host"] = host.into();
            }
            Ok(json!({"tcpSocket": socket}))
        }
        _ => Err(fields.wrong("", "must be an Http, Exec or Tcp")),
    }
}

/// The host and the port of an address. This machine is the Pod, which has no host.
fn address_of(address: &str) -> Option<(Option<&str>, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    Some(((!matches!(host, "" | "localhost" | "127.0.0.1")).then_some(host), port.parse().ok()?))
}

/// A mode such as `0644`, as the number that Kubernetes has.
fn mode_of(file: &Fields<'_>, mode: &str) -> Read<u32> {
    let digits = mode.strip_prefix("0o").unwrap_or(mode);
    u32::from_str_radix(digits, 8)
        .ok()
        .filter(|mode| *mode <= 0o777)
        .ok_or_else(|| file.wrong("mode", "must be an octal mode, such as 0644"))
}

/// A port of a workload.
#[derive(Debug)]
pub(super) struct Port {
    port: i64,
    target: i64,
    protocol: String,
    pub(super) is_public: bool,
}

impl Port {
    pub(super) fn all(workload: &Fields<'_>) -> Read<Vec<Self>> {
        let ports: Vec<Self> =
            (0..).zip(workload.list("ports")?).map(|(at, port)| Self::of(workload, at, port)).collect::<Read<_>>()?;
        for (at, port) in ports.iter().enumerate() {
            if ports[..at].iter().any(|other| other.port == port.port && other.protocol == port.protocol) {
                return Err(workload.wrong(&format!("ports[{at}]"), "repeats a port and its protocol"));
            }
        }
        Ok(ports)
    }

    fn of(workload: &Fields<'_>, at: usize, value: &Value) -> Read<Self> {
        let fields = Fields::of(&workload.at(&format!("ports[{at}]")), value)?;
        fields.only(&["port", "targetPort", "protocol", "public"])?;
        let in_range = |field: &str, port: i64| -> Result<i64, Wrong> {
            if (1..=65_535).contains(&port) { Ok(port) } else { Err(fields.wrong(field, "must be from 1 to 65535")) }
        };
        let port = fields.integer("port")?.ok_or_else(|| fields.wrong("port", "is required"))?;
        let port = in_range("port", port)?;
        let target = fields.integer("targetPort")?.filter(|target| *target != 0);
        let target = target.map_or(Ok(port), |target| in_range("targetPort", target))?;
        let protocol = fields.text("protocol")?.unwrap_or("TCP").to_owned();
        if !matches!(protocol.as_str(), "TCP" | "UDP") {
            return Err(fields.wrong("protocol", "must be TCP or UDP"));
        }
        Ok(Self { port, target, protocol, is_public: fields.bool("public")? })
    }

    /// The port of a Service.
    pub(super) fn of_service(&self, service: &str) -> Json {
        let Self { port, target, protocol, .. } = self;
        let name = format!("{service}-{port}-{}", protocol.to_lowercase());
        json!({"name": name, "port": port, "targetPort": target, "protocol": protocol})
    }
}
