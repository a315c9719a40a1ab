//! The packages and programs that the checks need.

use std::path::Path;

use anyhow::{Result, ensure};

use super::{execute, succeeds};

/// Installs the packages that the build links against, where that is possible, and says what else is missing.
pub(crate) fn prerequisites() -> Result<()> {
    let missing: Vec<&str> = [
        ("cc", succeeds("cc", &["--version"]), "gcc"),
        ("git", succeeds("git", &["--version"]), "git"),
        ("pkg-config", succeeds("pkg-config", &["--version"]), "pkg-config"),
        ("OpenSSL's headers", succeeds("pkg-config", &["--exists", "openssl"]), "libssl-dev"),
    ]
    .into_iter()
    .filter(|(what, there, _)| {
        !there && {
            eprintln!("missing: {what}");
            true
        }
    })
    .map(|(_, _, package)| package)
    .collect();
    if !missing.is_empty() {
        ensure!(succeeds("apt-get", &["--version"]), "install {} first", missing.join(", "));
        install(&missing)?;
    }
    ssh_server();
    ensure!(
        succeeds("go", &["version"]),
        "Go 1.26 has to be in PATH: the control plane and the client-go tests are built with it"
    );
    Ok(())
}

/// Installs packages with apt-get.
fn install(packages: &[&str]) -> Result<()> {
    let root = succeeds("sh", &["-c", "test \"$(id -u)\" = 0"]);
    let prefix: &[&str] = if root { &["apt-get"] } else { &["sudo", "apt-get"] };
    eprintln!("installing with apt-get: {}", packages.join(" "));
    // Until an installation that was cut off is brought to its end, there can be no other.
    let sudo = &prefix[..prefix.len() - 1];
    execute(&[sudo, &["dpkg", "--configure", "-a"]].concat(), &[])?;
    execute(&[prefix, &["update", "--quiet"]].concat(), &[])?;
    let install = ["install", "--yes", "--quiet", "--no-install-recommends"];
    execute(&[prefix, &install, packages].concat(), &[])
}

/// Installs the SSH server that the tests of remotes over SSH run for themselves, or says why they are skipped.
fn ssh_server() {
    // One that root starts needs a user, which is made last.
    let is_there = "PATH=$PATH:/usr/sbin:/usr/local/sbin; command -v sshd && { test \"$(id -u)\" != 0 || id sshd; }";
    if succeeds("sh", &["-c", is_there]) {
        return;
    }
    // There the package starts a server for the whole machine, which nobody asked for.
    let has_services = Path::new("/run/systemd/system").is_dir();
    let installed = if has_services || !succeeds("apt-get", &["--version"]) {
        Err(anyhow::anyhow!("sshd is not there"))
    } else {
        install(&["openssh-server"])
    };
    if let Err(error) = installed {
        eprintln!("skipped: tests of remotes over SSH, which need the package openssh-server: {error:#}");
    }
}
