//! The memory of processes between requests: the renderer's after a large kustomization, and KCL's.

use std::time::{Duration, Instant};

use stoa_proto::GenerateRequest;

use crate::bed::{Bed, Origin};
use crate::caller::git;

/// The most that an idle process may have resident, in bytes.
const MOST: u64 = 60 << 20;
const PATIENCE: Duration = Duration::from_secs(30);

/// The memory that a process has resident, in bytes; nothing once it has ended.
fn resident(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? << 10)
}

/// The processes of a runner whose command line has a word.
fn processes(bed: &Bed, word: &str) -> Vec<u32> {
    let has_word = |pid: &u32| {
        let said = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&said).contains(word)
    };
    bed.children().into_iter().filter(has_word).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_processes_give_back_their_memory() {
    let (Ok(renderer), Ok(kcl)) = (std::env::var("STOA_TEST_RENDERER"), std::env::var("STOA_TEST_KCL")) else {
        eprintln!("skipped: STOA_TEST_RENDERER or STOA_TEST_KCL is not set");
        return;
    };
    let bed = Bed::start_with(&[&format!("--renderer={renderer}"), &format!("--kcl-library={kcl}")]);
    let origin = Origin::new(&bed.path("origin"));
    let mut list = "resources:\n".to_owned();
    let mut files = Vec::new();
    for number in 0..1_000 {
        list += &format!("- a{number}.yaml\n");
        let object = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a{number}}}\ndata: {{a: b}}\n");
        files.push((format!("large/a{number}.yaml"), object));
    }
    files.push(("large/kustomization.yaml".to_owned(), list));
    let program = "a = [{apiVersion = \"v1\", kind = \"ConfigMap\", metadata.name = \"a${n}\"} for n in range(100)]\n";
    files.push(("kcl/main.k".to_owned(), program.to_owned()));
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let commit = origin.commit(&files);
    for path in ["large", "kcl"] {
        let request = GenerateRequest {
            source: Some(git(&origin.remote())),
            commit: commit.clone(),
            path: path.to_owned(),
            organization: "shop".to_owned(),
            project: "web".to_owned(),
            stack: "dev".to_owned(),
            ..GenerateRequest::default()
        };
        bed.client().await.generate(request).await.unwrap();
    }
    let kcl = processes(&bed, "--kcl-object=");
    assert!(kcl.len() == 1 && resident(kcl[0]).unwrap() < MOST, "{kcl:?}");
    // One that does not shrink ends, which is as good.
    let start = Instant::now();
    loop {
        let sizes: Vec<u64> = bed.children().into_iter().filter_map(resident).collect();
        if sizes.iter().all(|size| *size < MOST) {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "{sizes:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
