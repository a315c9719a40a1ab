//! Files of tools that no generator runs, beside manifests or below them. `Auto` deploys no part of such a folder.

use stoa_proto::Problem;

use super::yaml;
use crate::failure::{problem, reason};
use crate::source::{Content, SourceFile};

/// The suffixes of files, and what they are.
const SUFFIXES: [(&str, &str); 7] = [
    (".tf", "a configuration of Terraform"),
    (".tf.json", "a configuration of Terraform"),
    (".jsonnet", "a program in Jsonnet"),
    (".libsonnet", "a program in Jsonnet"),
    (".cue", "a program in CUE"),
    (".k", "a program in KCL"),
    ("/Kptfile", "a package of kpt"),
];
/// The names by which Docker Compose finds its files.
const COMPOSE: [&str; 4] = ["compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"];

/// What a file is by its path from the folder of a stack, if it is of such a tool.
pub(crate) fn is_of_tool(path: &str) -> Option<&'static str> {
    SUFFIXES.iter().find(|(suffix, _)| path.ends_with(suffix)).map(|(_, what)| *what)
}

/// The first file of such a tool in a folder, with what to do.
pub(super) fn find(content: &Content) -> Option<Problem> {
    let Content::Folder { path, files, others, .. } = content else { return None };
    let other = others.iter().find_map(|name| Some((super::join(path, name), is_of_tool(name)?)));
    let (file, what) = other.or_else(|| files.iter().find_map(|file| Some((file.path.clone(), of_file(file)?))))?;
    let message = format!(
        "is {what}, and generator Auto does not deploy a folder in part; set spec.path of the Stack to another folder, or \
         spec.generator.type to Manifests, which deploys the manifests alone"
    );
    Some(Problem { file, ..problem(reason::NOT_AVAILABLE, message) })
}

fn of_file(file: &SourceFile) -> Option<&'static str> {
    let name = file.path.rsplit('/').next().unwrap_or(&file.path);
    if name.ends_with(".tf.json") {
        return is_of_tool(name);
    }
    let is_compose = || {
        let documents = yaml::documents(file).unwrap_or_default();
        documents.iter().any(|it| it.value.get("services").is_some() && it.value.get("apiVersion").is_none())
    };
    (COMPOSE.contains(&name) && is_compose()).then_some("a file of Docker Compose")
}

#[cfg(test)]
mod tests {
    use crate::generate::tests::{folder, generate, refused};

    const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\n";

    #[test]
    fn auto_deploys_no_folder_in_part() {
        let compose = "services: {web: {image: web}}\n";
        for (file, text, what) in [
            ("main.tf", "", "a configuration of Terraform"),
            ("infra/main.tf", "", "a configuration of Terraform"),
            ("db.tf.json", "{}", "a configuration of Terraform"),
            ("a.jsonnet", "", "a program in Jsonnet"),
            ("lib/a.libsonnet", "", "a program in Jsonnet"),
            ("a.cue", "", "a program in CUE"),
            ("app/main.k", "", "a program in KCL"),
            ("app/Kptfile", "", "a package of kpt"),
            ("docker-compose.yml", compose, "a file of Docker Compose"),
            ("dev/compose.yaml", compose, "a file of Docker Compose"),
        ] {
            let problem = refused("Auto", &[("a.yaml", MAP), (file, text)]);
            assert_eq!(problem.file, format!("s/{file}"));
            assert!(problem.message.starts_with(&format!("is {what}, and generator Auto")), "{}", problem.message);
        }
        generate("Auto", &folder(&[("compose.yaml", MAP), ("notes.txt", ""), ("a.tfvars", "")])).unwrap();
        // Who names the generator means the manifests.
        let generated = generate("Manifests", &folder(&[("a.yaml", MAP), ("main.tf", "")])).unwrap();
        assert_eq!(generated.spec.resources.len(), 1);
    }
}
