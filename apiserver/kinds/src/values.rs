//! The values for the generator of a stack: which of several origins decides each.
//!
//! Start at [`merge`]. It reads nothing: [`crate::variable_set`] finds the [`Layer`]s of a stack in a workspace.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde_json::Value;
use stoa_types::SecretKeyReference;

/// The most specific selector of a VariableSet, from the weakest to the strongest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// It selects all stacks.
    Platform,
    /// It selects organizations.
    Organization,
    /// It selects projects.
    Project,
    /// It selects stacks.
    Stack,
    /// It selects workspaces.
    Workspace,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Platform => "platform",
            Self::Organization => "organization",
            Self::Project => "project",
            Self::Stack => "stack",
            Self::Workspace => "workspace",
        })
    }
}

/// The object that sets a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// `spec.values` or `spec.secrets` of a VariableSet.
    VariableSet {
        /// The name of the set.
        name: String,
        /// Its level.
        level: Level,
    },
    /// `spec.values` of a Workspace, by its name.
    Workspace(String),
    /// `spec.generator.parameters` of a Stack, by its name.
    Stack(String),
    /// `spec.parameters` of the Run.
    Run,
}

impl Origin {
    /// The strength: of two origins, the one with the greater strength decides.
    fn strength(&self) -> (u8, Option<Level>) {
        match self {
            Self::VariableSet { level, .. } => (0, Some(*level)),
            Self::Workspace(_) => (1, None),
            Self::Stack(_) => (2, None),
            Self::Run => (3, None),
        }
    }

    /// The kind of the object.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::VariableSet { .. } => "VariableSet",
            Self::Workspace(_) => "Workspace",
            Self::Stack(_) => "Stack",
            Self::Run => "Run",
        }
    }

    /// The name of the object; empty for the Run, which may have none yet.
    pub fn object(&self) -> &str {
        match self {
            Self::VariableSet { name, .. } | Self::Workspace(name) | Self::Stack(name) => name,
            Self::Run => "",
        }
    }
}

/// The object as texts name it, such as `VariableSet eu`.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run => f.write_str("the Run"),
            Self::VariableSet { .. } | Self::Workspace(_) | Self::Stack(_) => {
                write!(f, "{} {}", self.kind(), self.object())
            }
        }
    }
}

/// A value as its origin has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Given {
    /// The value itself.
    Plain(Value),
    /// The key of a Secret that has it.
    Secret(SecretKeyReference),
}

/// The values of one origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// The origin.
    pub origin: Origin,
    /// Its values, by name.
    pub values: BTreeMap<String, Given>,
    /// The names of those that no stronger origin may set.
    pub final_values: BTreeSet<String>,
}

impl Layer {
    /// The parameters of a Stack or Run.
    pub fn of_parameters(origin: Origin, parameters: &BTreeMap<String, String>) -> Self {
        let values = parameters.iter().map(|(name, text)| (name.clone(), Given::Plain(text.as_str().into())));
        Self { origin, values: values.collect(), final_values: BTreeSet::new() }
    }
}

/// A value, with the origin that decided it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The name.
    pub name: String,
    /// The value.
    pub given: Given,
    /// The origin that decided it.
    pub origin: Origin,
    /// Whether no stronger origin may set it.
    pub is_final: bool,
    /// The origins that it overrides, the strongest first.
    pub overridden: Vec<Origin>,
}

/// A value that several origins set, and that none of them decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// Two VariableSets of one level set it.
    Tie {
        /// The name of the value.
        name: String,
        /// The level.
        level: Level,
        /// The names of the sets.
        sets: Vec<String>,
    },
    /// An origin sets it that may not.
    Final {
        /// The name of the value, as the stronger origin has it.
        name: String,
        /// The origin that made it final.
        decided: Origin,
        /// The stronger origin.
        overriding: Origin,
    },
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tie { name, level, sets } => write!(
                f,
                "value {name:?}: VariableSets {} of level {level} both set it; remove it from one of them, or set it in \
                 the Workspace",
                sets.join(" and ")
            ),
            Self::Final { name, decided, overriding } => {
                write!(
                    f,
                    "value {name:?}: it is final in {decided}, and {overriding} sets it; remove it from {overriding}"
                )
            }
        }
    }
}

/// The names of all VariableSets that decide a value, in the order of the names.
pub fn variable_sets(chosen: &[Chosen]) -> BTreeSet<&str> {
    let is_of_set = |chosen: &&Chosen| matches!(chosen.origin, Origin::VariableSet { .. });
    chosen.iter().filter(is_of_set).map(|chosen| chosen.origin.object()).collect()
}

/// Decides every value of some layers, in the order of the names. The order of the layers has no meaning.
///
/// # Errors
///
/// All conflicts, in the order of the names.
pub fn merge(layers: &[Layer]) -> Result<Vec<Chosen>, Vec<Conflict>> {
    let mut by_name: BTreeMap<&str, Vec<&Layer>> = BTreeMap::new();
    for layer in layers {
        for name in layer.values.keys() {
            by_name.entry(name).or_default().push(layer);
        }
    }
    let (mut chosen, mut conflicts) = (Vec::new(), Vec::new());
    for (name, mut setting) in by_name {
        setting.sort_by_key(|layer| std::cmp::Reverse(layer.origin.strength()));
        let Some((strongest, weaker)) = setting.split_first() else { continue };
        let found = conflicts.len();
        conflicts.extend(overridden_finals(name, strongest, layers));
        let is_tied = |layer: &&&Layer| layer.origin.strength() == strongest.origin.strength();
        if let (Origin::VariableSet { level, .. }, true) = (&strongest.origin, weaker.iter().any(|it| is_tied(&it))) {
            let mut sets: Vec<String> =
                setting.iter().filter(is_tied).map(|it| it.origin.object().to_owned()).collect();
            sets.sort();
            conflicts.push(Conflict::Tie { name: name.to_owned(), level: *level, sets });
        }
        if conflicts.len() == found {
            chosen.push(Chosen {
                name: name.to_owned(),
                given: strongest.values[name].clone(),
                origin: strongest.origin.clone(),
                is_final: strongest.final_values.contains(name),
                overridden: weaker.iter().map(|layer| layer.origin.clone()).collect(),
            });
        }
    }
    if conflicts.is_empty() { Ok(chosen) } else { Err(conflicts) }
}

/// The conflicts of the strongest layer of a name with weaker ones in which the name is final. A parameter `image.tag` or
/// `hosts[0]` sets a part of the value `image` or `hosts`.
fn overridden_finals<'a>(
    name: &'a str,
    strongest: &'a Layer,
    layers: &'a [Layer],
) -> impl Iterator<Item = Conflict> + 'a {
    let whole = name.split(['.', '[']).next().unwrap_or(name);
    let is_final = move |layer: &&Layer| [name, whole].iter().any(|name| layer.final_values.contains(*name));
    let is_weaker = |layer: &&Layer| layer.origin.strength() < strongest.origin.strength();
    layers.iter().filter(is_weaker).filter(is_final).map(|layer| Conflict::Final {
        name: name.to_owned(),
        decided: layer.origin.clone(),
        overriding: strongest.origin.clone(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn layer(origin: Origin, values: Value, finals: &[&str]) -> Layer {
        let values = values.as_object().unwrap().clone().into_iter();
        Layer {
            origin,
            values: values.map(|(name, value)| (name, Given::Plain(value))).collect(),
            final_values: finals.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    fn set(name: &str, level: Level) -> Origin {
        Origin::VariableSet { name: name.to_owned(), level }
    }

    fn merged(layers: &[Layer]) -> Vec<String> {
        match merge(layers) {
            Ok(chosen) => chosen
                .into_iter()
                .map(|it| {
                    let Given::Plain(value) = it.given else { panic!("no secret is given") };
                    let over: Vec<String> = it.overridden.iter().map(ToString::to_string).collect();
                    format!("{}={value} of {} over [{}]", it.name, it.origin, over.join(", "))
                })
                .collect(),
            Err(conflicts) => conflicts.iter().map(ToString::to_string).collect(),
        }
    }

    /// All origins, from the weakest to the strongest.
    fn origins() -> Vec<Origin> {
        let levels = [Level::Platform, Level::Organization, Level::Project, Level::Stack, Level::Workspace];
        let mut origins: Vec<Origin> = levels.into_iter().map(|level| set(&level.to_string(), level)).collect();
        origins.extend([Origin::Workspace("dev".to_owned()), Origin::Stack("web".to_owned()), Origin::Run]);
        origins
    }

    #[test]
    fn stronger_origin_decides_a_value() {
        let origins = origins();
        for (strength, strongest) in origins.iter().enumerate() {
            let present = origins[..=strength].iter().rev();
            let layers: Vec<Layer> = present.map(|of| layer(of.clone(), json!({"a": of.to_string()}), &[])).collect();
            let mut weaker: Vec<String> = origins[..strength].iter().map(ToString::to_string).collect();
            weaker.reverse();
            assert_eq!(merged(&layers), [format!("a=\"{strongest}\" of {strongest} over [{}]", weaker.join(", "))]);
        }
    }

    #[test]
    fn value_replaces_another_as_a_whole() {
        let layers = [
            layer(set("eu", Level::Organization), json!({"image": {"tag": "1", "pull": "Always"}, "b": 1}), &[]),
            layer(Origin::Workspace("dev".to_owned()), json!({"image": {"tag": "2"}}), &[]),
        ];
        assert_eq!(
            merged(&layers),
            ["b=1 of VariableSet eu over []", "image={\"tag\":\"2\"} of Workspace dev over [VariableSet eu]"]
        );
    }

    #[test]
    fn final_value_admits_no_stronger_origin() {
        let origins = origins();
        for (strength, decided) in origins.iter().enumerate() {
            for (other, overriding) in origins.iter().enumerate().filter(|(other, _)| *other != strength) {
                let layers =
                    [layer(decided.clone(), json!({"a": 1}), &["a"]), layer(overriding.clone(), json!({"a": 2}), &[])];
                let expected = if other < strength {
                    format!("a=1 of {decided} over [{overriding}]")
                } else {
                    format!(
                        "value \"a\": it is final in {decided}, and {overriding} sets it; remove it from {overriding}"
                    )
                };
                assert_eq!(merged(&layers), [expected]);
            }
        }
    }

    #[test]
    fn part_of_a_final_value_is_final() {
        let decided =
            layer(set("eu", Level::Platform), json!({"image": {"tag": "1"}, "hosts": ["a"]}), &["image", "hosts"]);
        let parameters = layer(Origin::Run, json!({"image.tag": "2", "hosts[0]": "b", "imageTag": "3"}), &[]);
        assert_eq!(
            merged(&[decided, parameters]),
            [
                "value \"hosts[0]\": it is final in VariableSet eu, and the Run sets it; remove it from the Run",
                "value \"image.tag\": it is final in VariableSet eu, and the Run sets it; remove it from the Run",
            ]
        );
    }

    #[test]
    fn sets_of_one_level_may_not_set_one_value() {
        let tied =
            |level| [layer(set("us", level), json!({"a": 1}), &[]), layer(set("eu", level), json!({"a": 1}), &[])];
        let mut layers = tied(Level::Project).to_vec();
        let tie = "value \"a\": VariableSets eu and us of level project both set it; remove it from one of them, or set \
                   it in the Workspace";
        assert_eq!(merged(&layers), [tie]);
        // The stronger one decides, whatever the others say.
        layers.push(layer(Origin::Workspace("dev".to_owned()), json!({"a": 2}), &[]));
        assert_eq!(merged(&layers), ["a=2 of Workspace dev over [VariableSet us, VariableSet eu]"]);
        layers.pop();
        layers.push(layer(set("all", Level::Platform), json!({"a": 2}), &[]));
        assert_eq!(merged(&layers), [tie]);
    }

    #[test]
    fn sets_that_decide_nothing_are_not_used() {
        let layers = [
            layer(set("a", Level::Platform), json!({"x": 1}), &[]),
            layer(set("b", Level::Stack), json!({"x": 1, "y": 2}), &[]),
        ];
        assert_eq!(variable_sets(&merge(&layers).unwrap()), BTreeSet::from(["b"]));
    }
}
