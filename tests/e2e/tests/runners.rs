//! Faults between the processes: function-runners that are restarted one after the other or are full, a network that is
//! cut, certificates that are replaced, and a kube-apiserver that crashes, each in the middle of an apply. Every run ends
//! well by itself, and nothing happens twice.
//!
//! When that happens and how long a cut lasts is drawn from a seed ([`stoa_e2e::repeat`]): some seconds, or more than a minute where there are more
//! rounds than one.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use stoa_e2e::fixture::{Organization, condition, config_maps};
use stoa_e2e::repeat::{Random, is_in_full, repeat, rounds};
use stoa_e2e::{Cluster, Proxy, Server as _, eventually, free_port, is_let_in};
use stoa_pki::{CertificateAuthority, CertificateRequest};

/// So many that something can happen while they are applied.
fn objects() -> usize {
    if is_in_full() { 800 } else { 500 }
}

/// How many of them are there before it does, at least and at most.
const BEFORE: std::ops::Range<u64> = 20..100;
/// How long anything that has to happen may take on a machine that is busy building.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a runner may take to end that has calls under way for ConfigMaps.
const DRAIN: Duration = Duration::from_secs(20);
/// Longer than a runner takes that goes on with its calls.
const AFTERWARDS: Duration = Duration::from_secs(3);

/// The user of the test bed's own runner.
const FIRST: &str = "system:serviceaccount:stoa-system:function-runner";
/// The user of another one.
const SECOND: &str = "admin";

/// A Stoa that knows two function-runners, one of which is where a proxy leads. The tests have it one after the other.
struct Bed {
    cluster: Cluster,
    proxy: Proxy,
    second: u16,
}

static TURN: Mutex<()> = Mutex::new(());

/// The bed, for as long as the guard is held.
fn bed() -> (MutexGuard<'static, ()>, Arc<Bed>) {
    static SHARED: Mutex<Weak<Bed>> = Mutex::new(Weak::new());
    let shared = {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let (proxy, second) = (Proxy::start(), free_port());
            let runners = [proxy.port(), second].map(|port| format!("--runner=https://localhost:{port}"));
            let bed = Arc::new(Bed { cluster: Cluster::replicated_with(1, &runners), proxy, second });
            *shared = Arc::downgrade(&bed);
            bed
        })
    };
    (TURN.lock().unwrap_or_else(PoisonError::into_inner), shared)
}

impl Bed {
    /// Begins to apply many objects and returns when some are there: the organization, the run, the namespace.
    fn begin(&self, random: &mut Random) -> (Organization, String, String) {
        self.begin_in(Organization::create(&self.cluster), random)
    }

    fn begin_in(&self, organization: Organization, random: &mut Random) -> (Organization, String, String) {
        let before = BEFORE.start + random.below(BEFORE.end - BEFORE.start);
        let namespace = format!("{}-web", organization.name);
        organization.stack("web", &config_maps(&namespace, objects(), "a"));
        let run = organization.start("web", "Apply", "");
        let done = self.cluster.kubectl().watch(&organization.name, &format!("run/{run}"), PATIENCE, |run| {
            run["status"]["progress"]["done"].as_u64().filter(|done| *done > before)
        });
        eprintln!("{done} of {} objects are there", objects());
        (organization, run, namespace)
    }

    /// An organization whose workspace is the cluster, and the way on which the cluster is reached.
    fn far_organization(&self) -> (Organization, Proxy) {
        let kubectl = self.cluster.kubectl();
        let (url, way) = (self.cluster.env("APISERVER_URL"), Proxy::start());
        self.lead_to_cluster(&way);
        let (host, _) = url.rsplit_once(':').unwrap();
        let kubeconfig = fs::read_to_string(&kubectl.kubeconfig).unwrap();
        assert!(kubeconfig.contains(&url));
        let kubeconfig = kubeconfig.replace(&url, &format!("{host}:{}", way.port()));
        let organization = Organization::create(&self.cluster);
        organization.lead_to("far", &kubeconfig, "");
        (organization, way)
    }

    fn lead_to_cluster(&self, way: &Proxy) {
        way.lead_to(self.cluster.env("APISERVER_URL").rsplit(':').next().unwrap().parse().unwrap());
    }

    /// The answers to the requests that may have changed ConfigMaps of the namespace, by name and in order.
    fn calls(&self, namespace: &str, user: Option<&str>) -> BTreeMap<String, Vec<u64>> {
        let mut calls: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for event in self.cluster.audit(namespace) {
            let object = &event["objectRef"];
            let is_read = ["get", "list", "watch"].contains(&event["verb"].as_str().unwrap_or_default());
            let is_dry = event["requestURI"].as_str().is_some_and(|uri| uri.contains("dryRun="));
            let by = event["user"]["username"].as_str().unwrap_or_default();
            if object["resource"] == "configmaps"
                && object["namespace"] == namespace
                && !is_read
                && !is_dry
                && user.map_or([FIRST, SECOND].contains(&by), |user| user == by)
            {
                let name = object["name"].as_str().unwrap_or_default().to_owned();
                calls.entry(name).or_default().push(event["responseStatus"]["code"].as_u64().unwrap_or_default());
            }
        }
        calls
    }

    /// Waits until the run has ended and checks that the world is as it says; what `runs/log` has.
    fn check(&self, organization: &Organization, run: &str, namespace: &str) -> String {
        let ended = organization.ended(run, PATIENCE);
        assert_eq!(ended["status"]["phase"], "Succeeded", "{ended:#}");
        let revisions: Vec<Value> = organization
            .of_stack("releases", "web")
            .iter()
            .map(|release| release["spec"]["revision"].clone())
            .collect();
        assert_eq!(revisions, [1]);
        assert_eq!(organization.of_stack("resources", "web").len(), objects() + 1);
        let calls = self.calls(namespace, None);
        assert_eq!(calls.len(), objects(), "objects that were asked for");
        let twice: Vec<_> =
            calls.iter().filter(|(_, codes)| codes.iter().filter(|code| **code == 201).count() > 1).collect();
        assert!(twice.is_empty(), "created twice: {twice:?}");
        let preview = organization.succeed("web", "Preview", "");
        let summary = preview["status"]["plan"]["summary"].clone();
        let left = ["create", "update", "delete", "replace", "adopt", "forget"].map(|what| summary[what].as_i64());
        assert!(left.iter().all(|count| count.unwrap_or(0) == 0), "left to do: {summary}");
        let path = format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{}/runs/{run}/log", organization.name);
        self.cluster.kubectl().raw(&path)
    }
}

#[test]
fn runner_restarts_hand_apply_over_exactly_once() {
    let (_turn, bed) = bed();
    rounds(|random| {
        let ports = [free_port(), bed.second];
        let mut runners = ports.map(|port| Some(bed.cluster.another_runner_at(port)));
        bed.proxy.lead_to(ports[0]);
        let (organization, run, namespace) = bed.begin(random);
        for (runner, port) in runners.iter_mut().zip(ports) {
            runner.take().unwrap().end(DRAIN);
            *runner = Some(bed.cluster.another_runner_at(port));
        }
        let log = bed.check(&organization, &run, &namespace);
        let handed_over = ports.iter().any(|port| {
            let log =
                bed.cluster.logs().into_iter().find(|log| log.ends_with(format!("function-runner-at-{port}.log")));
            fs::read_to_string(log.unwrap()).unwrap().contains("retry with another one")
        });
        assert!(handed_over, "the apply was over before the runners were restarted");
        assert!(!log.contains("connection to another function-runner was lost"), "the next runner had to wait:\n{log}");
        let others: Vec<_> = bed.calls(&namespace, None).into_iter().filter(|(_, codes)| *codes != [201]).collect();
        assert!(others.is_empty(), "not called for exactly once: {others:?}");
    });
}

#[test]
fn second_runner_continues_apply_after_network_cut() {
    let (_turn, bed) = bed();
    rounds(|random| {
        bed.proxy.lead_to(bed.cluster.env("RUNNER_URL").rsplit(':').next().unwrap().parse().unwrap());
        let (organization, run, namespace) = bed.begin(random);
        bed.proxy.cut();
        let _second = bed.cluster.another_runner_at(bed.second);
        eventually("the other runner goes on", PATIENCE, || {
            (!bed.calls(&namespace, Some(SECOND)).is_empty()).then_some(())
        });
        let before = bed.calls(&namespace, Some(FIRST));
        assert!(before.len() < objects(), "the first runner had made all its calls");
        bed.proxy.heal();
        thread::sleep(AFTERWARDS);
        assert_eq!(bed.calls(&namespace, Some(FIRST)), before, "it was presumed dead, and went on with its calls");
        bed.check(&organization, &run, &namespace);
    });
}

#[test]
fn an_apply_goes_on_when_its_cluster_comes_back() {
    let (_turn, bed) = bed();
    rounds(|random| {
        bed.proxy.lead_to(bed.cluster.env("RUNNER_URL").rsplit(':').next().unwrap().parse().unwrap());
        let (organization, run, namespace) = bed.begin(random);
        bed.cluster.kill("kube-apiserver");
        bed.cluster.restart();
        bed.check(&organization, &run, &namespace);
    });
}

/// How long a network stays cut.
fn outage(random: &mut Random) -> Duration {
    // A runner that nobody hears of is given up after 8 s, and a call after 65 s.
    let longest = if repeat() > 1 { 70 } else { 6 };
    Duration::from_secs(2) + random.delay(Duration::from_secs(longest))
}

#[test]
fn apply_resumes_after_server_runner_network_outage() {
    let (_turn, bed) = bed();
    rounds(|random| {
        bed.proxy.lead_to(bed.cluster.env("RUNNER_URL").rsplit(':').next().unwrap().parse().unwrap());
        let (organization, run, namespace) = bed.begin(random);
        bed.proxy.cut();
        let outage = outage(random);
        eprintln!("cut for {outage:?}");
        thread::sleep(outage);
        let before = bed.calls(&namespace, None).len();
        assert!(before < objects(), "the runner had made all its calls");
        bed.proxy.heal();
        bed.check(&organization, &run, &namespace);
    });
}

#[test]
fn apply_resumes_after_runner_cluster_network_outage() {
    let (_turn, bed) = bed();
    rounds(|random| {
        bed.proxy.lead_to(bed.cluster.env("RUNNER_URL").rsplit(':').next().unwrap().parse().unwrap());
        let (organization, way) = bed.far_organization();
        let (organization, run, namespace) = bed.begin_in(organization, random);
        way.cut();
        let outage = outage(random);
        eprintln!("cut for {outage:?}");
        thread::sleep(outage);
        let before = bed.calls(&namespace, None).len();
        assert!(before < objects(), "the runner had made all its calls");
        // Whether what was sent arrives late or its connection breaks.
        if random.below(2) == 0 {
            bed.lead_to_cluster(&way);
        }
        way.heal();
        bed.check(&organization, &run, &namespace);
    });
}

#[test]
fn full_runner_delays_runs_and_rejects_callers() {
    let (_turn, bed) = bed();
    rounds(|random| {
        let _runner = bed.cluster.another_runner_with(bed.second, &bed.cluster.pki(), &["--max-calls=1"]);
        bed.proxy.lead_to(free_port());
        let kubectl = bed.cluster.kubectl();
        let (organization, way) = bed.far_organization();
        let (organization, run, namespace) = bed.begin_in(organization, random);
        // The apply keeps the one place that there is.
        way.cut();
        let name = organization.name.as_str();
        let commit = organization.stack("other", &config_maps(&format!("{name}-other"), 1, "a"));
        let waiting = organization.start("other", "Preview", "");
        let full = "the function-runner has reached its limit of 1 concurrent calls; retry later";
        kubectl.watch(name, &format!("run/{waiting}"), PATIENCE, |run| {
            let waits = condition(run, "Waiting");
            let says = waits["message"].as_str().is_some_and(|said| said.starts_with(full));
            (waits["status"] == "True" && says).then_some(())
        });
        let path = format!("/apis/config.stoa.dev/v1alpha1/namespaces/{name}/stacks/other/generate");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let answer = runtime.block_on(async { bed.cluster.front_door().ask("POST", &path, &[], &Value::Null).await });
        assert_eq!((answer.code, answer.message()), (429, full), "{answer:?}");
        assert_eq!(answer.headers["retry-after"], "1");
        let generate = ["create", "--raw", &path, "--filename", "/dev/null"];
        let refused = kubectl.refused(&generate);
        assert!(refused.contains("(TooManyRequests)") && refused.contains(full), "{refused}");
        // Longer than until the source is looked at next.
        thread::sleep(Duration::from_secs(2));
        // Nothing is wrong with what could not be looked at meanwhile.
        let source = || kubectl.get(&["source/config", "--namespace", name]);
        let ready = condition(&source(), "Ready");
        assert_eq!(ready["status"], "True", "{ready}");
        assert_ne!(source()["status"]["observedCommit"], *commit, "the runner has time");
        way.heal();
        assert_eq!(organization.ended(&waiting, PATIENCE)["status"]["phase"], "Succeeded");
        eventually("the commit is seen", PATIENCE, || (source()["status"]["observedCommit"] == *commit).then_some(()));
        bed.check(&organization, &run, &namespace);
        // The source may be looked at once more, which takes the one place for a moment.
        let generated = eventually("there is a place", PATIENCE, || kubectl.try_to_run(&generate));
        assert!(generated.contains("c0"), "{generated}");
    });
}

/// A Spec of very many small values.
fn very_many_values(namespace: &str) -> String {
    let spec = config_maps(namespace, 1, "a");
    format!("{spec}    x: [{}]\n", "{a: 1},".repeat(720_000))
}

#[test]
fn excessive_source_fails_only_its_run() {
    let (_turn, bed) = bed();
    bed.proxy.lead_to(free_port());
    let organization = Organization::create(&bed.cluster);
    let name = organization.name.as_str();
    organization.stack("small", &config_maps(&format!("{name}-small"), 1, "a"));
    organization.stack("large", &very_many_values(&format!("{name}-large")));
    for (limit, wanted) in [
        ("--worker-memory-mib=96", "apps/large/spec.yaml: rendering took more than 96 MiB of memory; split the stack"),
        ("--worker-cpu-seconds=1", "apps/large/spec.yaml: rendering took more than 1 s of CPU time; split the stack"),
    ] {
        let _runner = bed.cluster.another_runner_with(bed.second, &bed.cluster.pki(), &["--workers=2", limit]);
        let large = organization.start("large", "Apply", "");
        organization.succeed("small", "Preview", "");
        let ended = organization.ended(&large, PATIENCE);
        let said = condition(&ended, "Failed")["message"].as_str().unwrap_or_default().to_owned();
        assert!(ended["status"]["phase"] == "Failed" && said.contains(wanted), "{limit}: {ended:#}");
        assert_eq!(organization.of_stack("resources", "large"), Vec::<Value>::new());
    }
}

/// Copies files of certificates from one folder to another, each at once.
fn copy(from: &Path, to: &Path, names: &[&str]) {
    for name in names {
        let new = to.join(format!("{name}.new"));
        fs::copy(from.join(name), &new).unwrap();
        fs::rename(new, to.join(name)).unwrap();
    }
}

#[test]
fn authority_replacement_interrupts_no_runs() {
    let (_turn, bed) = bed();
    rounds(|random| replace_authority(&bed, random));
}

fn replace_authority(bed: &Bed, random: &mut Random) {
    let folder = tempfile::tempdir().unwrap();
    let [old, new, of_runner] = ["old", "new", "runner"].map(|name| folder.path().join(name));
    for folder in [&old, &new, &of_runner] {
        fs::create_dir(folder).unwrap();
    }
    let servers = bed.cluster.pki();
    let all = ["runner-ca.crt", "runner.crt", "runner.key", "stoa-runner-client.crt", "stoa-runner-client.key"];
    let [authority, of_server] = [&all[..1], &all[3..]];
    copy(&servers, &old, &all);
    copy(&old, &of_runner, &all);
    let next = CertificateAuthority::new("next").unwrap();
    let issue = |request: &CertificateRequest, name: &str| next.issue(request).unwrap().write(&new, name).unwrap();
    issue(&CertificateRequest::server("function-runner").loopback(), "runner");
    issue(&CertificateRequest::client("stoa-apiserver"), "stoa-runner-client");
    fs::write(new.join("runner-ca.crt"), next.certificate_pem()).unwrap();
    let both = [&old, &new].map(|folder| fs::read_to_string(folder.join("runner-ca.crt")).unwrap()).concat();
    fs::write(folder.path().join("runner-ca.crt"), both).unwrap();
    let client = |folder: &Path| folder.join("stoa-runner-client");
    let is_let_in =
        |server: &Path, as_client: &Path| is_let_in(bed.second, &server.join("runner-ca.crt"), &client(as_client));
    // What the registered server says of the runner behind the proxy.
    let takes_calls = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let metrics = runtime.block_on(async {
            let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
            bed.cluster.replicas().remove(0).request_text(request).await.unwrap()
        });
        metrics.contains(&format!("runner_client_up{{runner=\"127.0.0.1:{}\"}} 1", bed.proxy.port()))
    };
    let reloads = || {
        let log = bed.cluster.logs().into_iter().find(|log| log.ends_with("stoa-apiserver.log")).unwrap();
        fs::read_to_string(log).unwrap().matches("reloaded").count()
    };

    bed.proxy.lead_to(free_port());
    let reload = ["--tls-reload-seconds=1"];
    let runner = bed.cluster.another_runner_with(bed.second, &of_runner, &reload);
    let near = Organization::create(&bed.cluster);
    near.stack("small", &config_maps(&format!("{}-small", near.name), 1, "a"));
    let (organization, way) = bed.far_organization();
    let (organization, run, namespace) = bed.begin_in(organization, random);
    // It is under way until all is replaced.
    way.cut();
    let (is_over, previews) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let previewing = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                near.succeed("small", "Preview", "");
                previews.fetch_add(1, Ordering::Relaxed);
            }
        });
        let _over = Over(&is_over);
        let goes_on = || {
            let before = previews.load(Ordering::Relaxed);
            eventually("another run ends well", PATIENCE, || {
                assert!(!previewing.is_finished(), "a run failed");
                (previews.load(Ordering::Relaxed) > before + 1).then_some(())
            });
        };
        goes_on();
        assert!(is_let_in(&old, &old) && !is_let_in(&old, &new));

        // Another runner, which keeps its certificate of the old authority, and believes both.
        let late = tempfile::tempdir().unwrap();
        copy(&old, late.path(), &all);
        copy(folder.path(), late.path(), authority);
        let late = bed.cluster.another_runner_with(free_port(), late.path(), &reload);
        bed.proxy.lead_to(late.port());
        eventually("it takes calls", PATIENCE, || takes_calls().then_some(()));

        // Both sides believe both, then each gets its new certificate, then the old authority is dropped.
        copy(folder.path(), &of_runner, authority);
        eventually("the runner believes the new authority", PATIENCE, || is_let_in(&old, &new).then_some(()));
        let before = reloads();
        copy(&new, &servers, of_server);
        copy(folder.path(), &servers, authority);
        eventually("the server has read its files", PATIENCE, || (reloads() > before).then_some(()));
        goes_on();
        copy(&new, &of_runner, &all[1..3]);
        copy(&new, &servers, &all[1..3]);
        eventually("the runner has its new certificate", PATIENCE, || is_let_in(&new, &new).then_some(()));
        goes_on();
        assert!(is_let_in(&new, &old) && takes_calls(), "the old authority is believed before its time is over");
        copy(&new, &of_runner, authority);
        copy(&new, &servers, authority);
        eventually("the runner drops the old authority", PATIENCE, || (!is_let_in(&new, &old)).then_some(()));
        eventually("the server drops the old authority", PATIENCE, || (!takes_calls()).then_some(()));
        assert!(is_let_in(&new, &new));
        goes_on();
    });
    way.heal();
    let log = bed.check(&organization, &run, &namespace);
    assert!(!log.contains("connection to another function-runner was lost"), "the apply had to begin again:\n{log}");
    eprintln!("{} runs meanwhile", previews.load(Ordering::Relaxed));
    drop(runner);
}

/// Says that it is over when it goes, also when a test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
