//! Runs functions as processes, and reads trees from folders.

use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;
use stoa_packages::{
    Mode, Tree,
    function::{Call, ExecuteError, Executor, Output, Program},
    resources,
};

/// Runs commands in a folder. Images are not allowed.
#[derive(Debug)]
pub(crate) struct Processes(pub(crate) PathBuf);

impl Executor for Processes {
    fn execute(&self, call: &Call<'_>) -> Result<Output, ExecuteError> {
        let Program::Exec(command) = call.program else {
            return Err(ExecuteError::ImageNotAllowed(call.program.to_string()));
        };
        // A shell splits words as kpt does.
        let mut child = Command::new("sh")
            .args(["-c", &format!("exec {command}")])
            .current_dir(&self.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = call.input.to_vec();
        // A function may end without reading its input.
        let writer = std::thread::spawn(move || stdin.write_all(&input).is_ok());
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok(Output { stdout: output.stdout, stderr, exit_code: output.status.code().unwrap_or(-1) })
    }
}

/// The files of a folder without `.expected` and `.git`; `None` if it has symbolic links.
pub(crate) fn read_folder(folder: &Path) -> Option<Tree> {
    let mut tree = Tree::default();
    let mut folders = vec![folder.to_owned()];
    while let Some(current) = folders.pop() {
        for entry in fs::read_dir(&current).unwrap() {
            let entry = entry.unwrap();
            let (kind, path) = (entry.file_type().unwrap(), entry.path());
            if kind.is_symlink() {
                return None;
            }
            if kind.is_dir() {
                if ![".expected", ".git"].iter().any(|name| entry.file_name() == *name) {
                    folders.push(path);
                }
                continue;
            }
            let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
            tree.add(&name, Mode::Regular, fs::read(&path).unwrap()).unwrap();
        }
    }
    Some(tree)
}

/// Writes the files of a tree to a folder.
pub(crate) fn write_folder(tree: &Tree, folder: &Path) {
    for (path, file) in tree.iter() {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, &file.content).unwrap();
    }
}

/// The objects of each file. Two renders with the same objects may differ in bytes.
pub(crate) fn objects(tree: &Tree) -> BTreeMap<String, Vec<Value>> {
    let mut files: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for resource in resources::read(tree).unwrap() {
        files.entry(resource.file()).or_default().push(resource.value.clone());
    }
    files
}
