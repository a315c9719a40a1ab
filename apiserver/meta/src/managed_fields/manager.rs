//! The field manager of one resource, which tracks ownership through every write.

use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value};

use super::{
    conflict,
    entries::{self, ManagerId, Managers, Operation, Owned},
    last_applied,
    schema::Schema,
    set::Set,
    typed::{self, Strictness},
    updater::{Applied, Conflict, Failure, Updater},
};
use crate::{
    definition::{Part, ResourceDefinition, Target},
    object::Object,
    status::ApiError,
};

/// How many managers of updates an object has before the oldest become one.
const MAX_UPDATE_MANAGERS: usize = 10;
/// What those become.
const ANCIENT: &str = "ancient-changes";
/// Who owns what was there before anything was applied or tracked.
const BEFORE: &str = "before-first-apply";

const MANAGED_FIELDS: &str = "managedFields";

/// What nobody ever owns.
static IDENTITY: LazyLock<Set> = LazyLock::new(|| {
    Set::of_fields(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "clusterName"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ])
});

/// The field managers of one resource: of the main resource, of its status, and of parts that are written alone.
#[derive(Debug)]
pub struct FieldManagers {
    main: FieldManager,
    status: FieldManager,
    parts: Vec<FieldManager>,
}

impl FieldManagers {
    /// The field managers of a resource.
    pub fn new(definition: &ResourceDefinition) -> Self {
        let schema = Arc::new(Schema::of_object(&definition.schema));
        let manager = |subresource, ignored: &[&[&str]]| FieldManager {
            schema: schema.clone(),
            group_version: definition.api_version(),
            kind: definition.kind.clone(),
            subresource,
            ignored: Set::of_fields(ignored),
        };
        let not_main: &[&[&str]] = if definition.has_status { &[&["status"]] } else { &[] };
        let of_part = |part: &Part| {
            let beside = beside(&definition.schema, part.path);
            manager(part.name, &beside.iter().map(Vec::as_slice).collect::<Vec<_>>())
        };
        Self {
            main: manager("", not_main),
            status: manager("status", &[&["metadata"], &["spec"]]),
            parts: definition.parts.iter().map(of_part).collect(),
        }
    }

    /// Of what is written through a subresource as a kind of its own.
    pub fn of_subresource(definition: &ResourceDefinition, subresource: &'static str) -> Self {
        let mut managers = Self::new(definition);
        managers.main.subresource = subresource;
        managers
    }

    /// The field manager of writes to `target`.
    pub fn of(&self, target: Target) -> &FieldManager {
        match target {
            Target::Main | Target::Scale => &self.main,
            Target::Status => &self.status,
            Target::Part(name) => {
                let part = self.parts.iter().find(|manager| manager.subresource == name);
                part.expect("a write of a part that there is not was not found")
            }
        }
    }

    /// Merges a configuration that nobody will own into an object, as a policy does that mutates.
    ///
    /// # Errors
    ///
    /// What is wrong with the configuration: what does not fit the schema, and what would replace a whole list or map.
    pub fn merge(&self, live: &Object, configuration: &Object) -> Result<Object, String> {
        let schema = &self.main.schema;
        typed::validate(schema, &configuration.0, Strictness::Applied)
            .map_err(|error| format!("failed to convert patch object to typed object: {error}"))?;
        let atomics = typed::atomics(schema, &configuration.0);
        if !atomics.is_empty() {
            let paths = atomics.join(", ");
            return Err(format!("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {paths}"));
        }
        typed::validate(schema, &live.0, Strictness::Stored)
            .map_err(|error| format!("failed to convert original object to typed object: {error}"))?;
        let merged = typed::merge(schema, &live.0, &configuration.0);
        merged.map(Object).map_err(|error| format!("failed to merge patch: {error}"))
    }
}

/// All fields of a schema that lie beside a path, as paths.
fn beside<'a>(schema: &'a Value, path: &'a [&'a str]) -> Vec<Vec<&'a str>> {
    let mut fields = Vec::new();
    let mut level = schema;
    for (depth, key) in path.iter().enumerate() {
        let properties = level["properties"].as_object();
        for (name, _) in properties.into_iter().flatten().filter(|(name, _)| name != key) {
            fields.push(path[..depth].iter().copied().chain([name.as_str()]).collect());
        }
        level = &level["properties"][*key];
    }
    fields
}

/// Whether `managedFields` make sense.
///
/// # Errors
///
/// What is wrong with an entry.
pub fn check(entries: Option<&Value>) -> Result<(), String> {
    entries::decode(entries).map(|_| ())
}

/// Tracks who owns what, for writes through one subresource or none.
#[derive(Debug)]
pub struct FieldManager {
    schema: Arc<Schema>,
    /// Such as `apps/v1`.
    group_version: String,
    kind: String,
    subresource: &'static str,
    /// What a write through here does not change.
    ignored: Set,
}

/// How a configuration is applied.
#[derive(Clone, Copy, Debug)]
pub struct ApplyOptions<'a> {
    /// Who applies it.
    pub manager: &'a str,
    /// Whether it takes what others own.
    pub force: bool,
    /// What its author had before. What the configuration leaves out of that goes, whoever owns it.
    pub previous: Option<&'a Object>,
    /// When, in seconds since 1970.
    pub now: i64,
}

impl FieldManager {
    /// The `managedFields` that `new` is to have once it replaces `live`, or is created when there is none. Both come
    /// with their own beside them.
    ///
    /// What is written with `new` counts, when it makes sense and this is no subresource; a `managedFields` of
    /// `[{}]` or `[]` ends the tracking. An object that was never tracked is not tracked from here on either.
    pub fn update(
        &self,
        live: Option<(&Object, Option<&Value>)>,
        (new, written): (&Object, Option<&Value>),
        manager: &str,
        now: i64,
    ) -> Option<Value> {
        let managers = self.begin(live.and_then(|(_, entries)| entries), written);
        let live = live.map(|(live, _)| &live.0);
        if managers.is_empty() && live.is_some_and(has_uid) {
            return None;
        }
        match self.track(live.unwrap_or(&Map::new()), &new.0, managers, manager, now) {
            Ok(managers) => entries::encode(&managers),
            // Upstream says of this that it should not happen, and goes on without.
            Err(error) => {
                tracing::error!(error, kind = self.kind, name = new.name(), "the owners of fields are lost");
                None
            }
        }
    }

    /// The owners that an update begins with.
    fn begin(&self, live: Option<&Value>, written: Option<&Value>) -> Managers {
        let of_live = || entries::decode(live).unwrap_or_default();
        if !self.subresource.is_empty() {
            return of_live();
        }
        if entries::is_reset(written) {
            return Managers::new();
        }
        match entries::decode(written) {
            Ok(managers) if !managers.is_empty() => managers,
            // Clients that know nothing of it leave it out.
            Ok(_) | Err(_) => of_live(),
        }
    }

    fn track(
        &self,
        live: &Map<String, Value>,
        new: &Map<String, Value>,
        managers: Managers,
        manager: &str,
        now: i64,
    ) -> Result<Managers, String> {
        for object in [new, live] {
            typed::validate(&self.schema, object, Strictness::Stored).map_err(|error| error.to_string())?;
        }
        let (set, mut managers) = self.updater().update(live, new, managers)?;
        let set = set.difference(&IDENTITY);
        if !set.is_empty() {
            let id = ManagerId::new(manager, Operation::Update, &self.group_version, self.subresource);
            let set = match managers.get(&id) {
                Some(owned) => set.union(&owned.set),
                None => set,
            };
            managers.insert(id, Owned { set, api_version: self.group_version.clone(), time: Some(now) });
        }
        merge_oldest(&mut managers);
        Ok(managers)
    }

    /// The object after a configuration was applied, `managedFields` included. Without a live object, one is made.
    ///
    /// # Errors
    ///
    /// 409 `Conflict` with a cause per field when others own what would change, unless `force` is set; 400 for
    /// another kind and for `managedFields` in the configuration; 500 with no reason, as upstream, for what does not
    /// fit the schema.
    pub fn apply(
        &self,
        live: Option<&Object>,
        configuration: &Object,
        options: ApplyOptions<'_>,
    ) -> Result<Object, ApiError> {
        self.check_type(configuration)?;
        let managed = live.and_then(Object::metadata).and_then(|metadata| metadata.get(MANAGED_FIELDS));
        let mut managers =
            entries::decode(managed).map_err(|error| broken(format!("failed to decode managed fields: {error}")))?;
        let mut live = live.map(|live| live.0.clone()).unwrap_or_default();
        if managers.is_empty() {
            managers = self
                .track(&Map::new(), &live, managers, BEFORE, options.now)
                .map_err(|error| broken(format!("failed to create manager for existing fields: {error}")))?;
        }
        // A list of anything but entries is none to upstream; what is wrong with it is found further on.
        let written = configuration.metadata().and_then(|metadata| metadata.get(MANAGED_FIELDS)?.as_array());
        if written.is_some_and(|written| written.iter().all(entries::is_entry)) {
            return Err(ApiError::bad_request("metadata.managedFields must be nil"));
        }
        self.check_values(configuration, &live)?;
        if let Some(previous) = options.previous {
            self.drop_left_out(&mut live, &mut managers, previous, configuration);
        }
        // What is merged with is typed upstream, and has its structs.
        let added = self.schema.add_structs(&mut live);
        let Applied { object, managers } = self.merge(&live, configuration, managers, options)?;
        if let Some(object) = object {
            live = object;
        }
        for field in added.iter().filter(|field| !configuration.0.contains_key(**field)) {
            if live.get(*field).and_then(Value::as_object).is_some_and(Map::is_empty) {
                live.remove(*field);
            }
        }
        if options.manager == last_applied::KUBECTL {
            last_applied::refresh(&mut live, &configuration.0);
        }
        let mut object = Object(live);
        object.metadata_mut().remove(MANAGED_FIELDS);
        put(&mut object, &managers);
        Ok(object)
    }

    fn merge(
        &self,
        live: &Map<String, Value>,
        configuration: &Object,
        managers: Managers,
        options: ApplyOptions<'_>,
    ) -> Result<Applied, ApiError> {
        let ApplyOptions { manager, force, now, previous: _ } = options;
        let id = ManagerId::new(manager, Operation::Apply, "", self.subresource);
        let updater = self.updater();
        let mut result = updater.apply(live, &configuration.0, managers.clone(), &id, force);
        if let Err(Failure::Conflicts(conflicts)) = &mut result
            && manager == last_applied::KUBECTL
            && let Some(own) = last_applied::unchanged(&self.schema, &self.group_version, live)
        {
            conflicts.retain(|Conflict { path, .. }| !own.has(path));
            if conflicts.is_empty() {
                result = updater.apply(live, &configuration.0, managers, &id, true);
            }
        }
        let mut applied = result.map_err(|failure| match failure {
            Failure::Conflicts(conflicts) => conflict::error(&conflicts),
            Failure::Error(error) => broken(error),
        })?;
        if let Some(owned) = applied.managers.get_mut(&id) {
            owned.set = owned.set.difference(&IDENTITY);
            if owned.set.is_empty() {
                applied.managers.remove(&id);
            } else if applied.object.is_some() {
                owned.time = Some(now);
            }
        }
        Ok(applied)
    }

    /// Takes out of an object, and from everybody who owns it, what a configuration leaves out of its previous form. One
    /// that does not fit the schema says nothing.
    fn drop_left_out(
        &self,
        live: &mut Map<String, Value>,
        managers: &mut Managers,
        previous: &Object,
        configuration: &Object,
    ) {
        let set_of = |object: &Object| typed::field_set(&self.schema, &object.0);
        let (Ok(before), Ok(after)) = (set_of(previous), set_of(configuration)) else { return };
        let dropped = before.parting(&after).recursive_difference(&self.ignored);
        if dropped.is_empty() {
            return;
        }
        *live = typed::remove(&self.schema, live, &dropped);
        for owned in managers.values_mut() {
            owned.set = owned.set.recursive_difference(&dropped);
        }
        managers.retain(|_, owned| !owned.set.is_empty());
    }

    fn check_type(&self, configuration: &Object) -> Result<(), ApiError> {
        let text = |field: &str| configuration.0.get(field).and_then(Value::as_str).unwrap_or("");
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        if api_version == self.group_version && kind == self.kind {
            return Ok(());
        }
        let (group, version) = match api_version.split_once('/') {
            Some((_, version)) if version.contains('/') => ("", ""),
            Some(parts) => parts,
            None => ("", api_version),
        };
        let kind = if api_version.matches('/').count() > 1 { "" } else { kind };
        Err(ApiError::bad_request(format!("invalid object type: {group}/{version}, Kind={kind}")))
    }

    fn check_values(&self, configuration: &Object, live: &Map<String, Value>) -> Result<(), ApiError> {
        let kind = |group_version: &str| match group_version.split_once('/') {
            Some(_) => format!("{group_version}, Kind={}", self.kind),
            None => format!("/{group_version}, Kind={}", self.kind),
        };
        let about = |what: &str, object: &Map<String, Value>, error: typed::Errors| {
            let text = |field: &str| object.get("metadata").and_then(|m| m.get(field)?.as_str()).unwrap_or("");
            let (namespace, name) = (text("namespace"), text("name"));
            broken(format!(
                "failed to create typed {what} object ({namespace}/{name}; {}): {error}",
                kind(&self.group_version)
            ))
        };
        typed::validate(&self.schema, &configuration.0, Strictness::Applied)
            .map_err(|error| about("patch", &configuration.0, error))?;
        typed::validate(&self.schema, live, Strictness::Stored).map_err(|error| about("live", live, error))
    }

    fn updater(&self) -> Updater<'_> {
        Updater { schema: &self.schema, api_version: &self.group_version, ignored: &self.ignored }
    }
}

/// 500 with no reason: what upstream makes of an error that is no Status.
fn broken(message: String) -> ApiError {
    ApiError::new(500, "", message)
}

fn has_uid(object: &Map<String, Value>) -> bool {
    object.get("metadata").and_then(|m| m.get("uid")?.as_str()).is_some_and(|uid| !uid.is_empty())
}

fn put(object: &mut Object, managers: &Managers) {
    if let Some(entries) = entries::encode(managers) {
        object.metadata_mut().insert(MANAGED_FIELDS.to_owned(), entries);
    }
}

/// Makes one of the oldest managers of updates, per version, until there are few enough.
fn merge_oldest(managers: &mut Managers) {
    let is_update = |id: &&ManagerId| id.operation == Operation::Update;
    let mut updaters: Vec<_> = managers.keys().filter(is_update).cloned().collect();
    let mut count = updaters.len();
    if count <= MAX_UPDATE_MANAGERS {
        return;
    }
    updaters.sort_by_cached_key(|id| (managers[id].time.unwrap_or(0), id.sort_key()));
    let mut first_of: Vec<ManagerId> = Vec::new();
    for id in updaters {
        if count <= MAX_UPDATE_MANAGERS {
            break;
        }
        let version = managers[&id].api_version.clone();
        let Some(first) = first_of.iter().find(|first| first.api_version == version).cloned() else {
            first_of.push(id);
            continue;
        };
        let bucket = ManagerId::new(ANCIENT, Operation::Update, &version, "");
        if !managers.contains_key(&bucket)
            && let Some(owned) = managers.remove(&first)
        {
            managers.insert(bucket.clone(), owned);
        }
        let Some(owned) = managers.remove(&id) else { continue };
        count -= 1;
        if let Some(all) = managers.get_mut(&bucket) {
            all.set = owned.set.union(&all.set);
            all.time = owned.time;
        }
    }
}
