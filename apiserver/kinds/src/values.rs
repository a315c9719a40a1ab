//! The values for the generator of a stack: which of several origins decides each.
//!
//! Start at [`merge`]. It reads nothing: [`crate::variable_set`] finds the [`Layer`]s of a stack in a workspace.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde_json::Value;
use stoa_machinery::status::FieldError;
use stoa_types::SecretKeyReference;

/// The longest name of a parameter, in bytes.
const LONGEST_NAME: usize = 256;

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

/// Whether a text can be the name of a parameter, such as `cell`, `image.tag` or `hosts[0]`. Helm reads more from a name, such as
/// other values after a comma.
pub fn is_parameter_name(name: &str) -> bool {
    let is_word = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    };
    let are_indexes = |text: &str| {
        text.is_empty()
            || text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).is_some_and(|indexes| {
                let is_index = |index: &str| !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit());
                indexes.split("][").all(is_index)
            })
    };
    let is_part = |part: &str| {
        let (word, indexes) = part.split_at(part.find('[').unwrap_or(part.len()));
        is_word(word) && are_indexes(indexes)
    };
    let starts = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'_';
    name.len() <= LONGEST_NAME && name.as_bytes().first().is_some_and(starts) && name.split('.').all(is_part)
}

/// Finds the wrong names of some parameters, which are at this path of an object.
pub fn parameter_names<'p>(path: &str, names: impl IntoIterator<Item = &'p String>) -> Vec<FieldError> {
    let wrong = names.into_iter().filter(|name| !is_parameter_name(name));
    let error = |name: &String| {
        let message = format!(
            "must begin with a letter or _, and have letters, digits, -, _, parts such as .tag and indexes such as [0], in at most \
             {LONGEST_NAME} bytes"
        );
        FieldError::invalid(path, name, message)
    };
    wrong.map(error).collect()
}

/// Decides every value of some layers, in the order of the names. The order of the layers has no meaning. A part of a value, such
/// as `image.tag`, has no effect where a stronger layer sets the whole value.
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
    if conflicts.is_empty() { Ok(without_replaced_parts(chosen)) } else { Err(conflicts) }
}

/// The values without those parts whose whole value a stronger origin decides.
fn without_replaced_parts(mut chosen: Vec<Chosen>) -> Vec<Chosen> {
    let mut replaced = Vec::new();
    for (at, part) in chosen.iter().enumerate() {
        let ends = part.name.match_indices(['.', '[']).map(|(end, _)| end);
        let mut wholes =
            ends.filter_map(|end| chosen.binary_search_by(|other| other.name.as_str().cmp(&part.name[..end])).ok());
        let stronger = wholes.find(|whole| chosen[*whole].origin.strength() > part.origin.strength());
        replaced.extend(stronger.map(|whole| (at, whole)));
    }
    for (part, whole) in replaced.iter().rev() {
        let origin = chosen[*part].origin.clone();
        if !chosen[*whole].overridden.contains(&origin) {
            chosen[*whole].overridden.push(origin);
        }
    }
    let is_replaced = |at: usize| replaced.binary_search_by_key(&at, |(part, _)| *part).is_ok();
    chosen.into_iter().enumerate().filter(|(at, _)| !is_replaced(*at)).map(|(_, chosen)| chosen).collect()
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
    fn whole_value_replaces_weaker_parts() {
        let parameters = |origin: Origin, names: &[&str]| {
            let values: serde_json::Map<String, Value> =
                names.iter().map(|name| ((*name).to_owned(), json!(name))).collect();
            layer(origin, Value::Object(values), &[])
        };
        let stack = Origin::Stack("web".to_owned());
        let layers = [
            parameters(stack.clone(), &["hosts[0]", "image", "map.deep.er[1].x", "map-x", "map.x"]),
            parameters(Origin::Run, &["hosts", "image.tag", "map.deep", "map[0]"]),
        ];
        assert_eq!(
            merged(&layers),
            [
                "hosts=\"hosts\" of the Run over [Stack web]",
                "image=\"image\" of Stack web over []",
                "image.tag=\"image.tag\" of the Run over []",
                "map-x=\"map-x\" of Stack web over []",
                "map.deep=\"map.deep\" of the Run over [Stack web]",
                "map.x=\"map.x\" of Stack web over []",
                "map[0]=\"map[0]\" of the Run over []",
            ]
        );
    }

    #[test]
    fn names_of_parameters_have_one_meaning() {
        for name in ["a", "_a", "cell", "image.tag", "hosts[0]", "a-b.c_d[10][2].0", "A1"] {
            assert!(is_parameter_name(name), "{name}");
        }
        let long = "a".repeat(LONGEST_NAME + 1);
        for name in [
            "", "1a", "-a", ".a", "a.", "a..b", "a=b", "a,b", "a\\.b", "a b", "a[", "a[]", "a[x]", "a[0", "a[0]b",
            "[0]", "a[-1]", "a[0]]", "ä", "a\n", &long,
        ] {
            assert!(!is_parameter_name(name), "{name}");
        }
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
