//! Recovery of lost calls: finds the results of calls that have an intent but no recorded result.
//!
//! Start at [`decide`]. A call is searched in the clusters that its intent names, and where its resource is recorded.
//! An old intent without clusters is searched where the record or the Spec has the resource.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use stoa_engine::{
    Action, Clusters, KubernetesObject, ObjectRef, OpenCall, PlannedAction, Problem, Resource, ResourceId,
    ResourceType, Sensitive, Spec, State, StateResource, cluster::id_in, import::IMPORT_ID, object::uid_of,
    planner::unknown_state, problem::reason, record::CallTarget,
};
use stoa_runtime::{Applied, Found, Runtime, RuntimeError};

use crate::planning::problem;

/// Why it cannot be found out.
pub(crate) enum Undecided {
    /// The infrastructure cannot be read; trying again may help.
    Runtime(RuntimeError),
    /// Something is wrong with some of them.
    Problems(Vec<Problem>),
}

/// A lost call, and where it is searched.
struct Search<'a> {
    call: &'a OpenCall,
    /// Its recorded location, if any.
    own: Option<StateResource>,
    /// Other locations, or all of them.
    others: Vec<StateResource>,
    /// A location that cannot be read: a cluster that the workspace does not have.
    beyond: Option<String>,
    /// Its id may be of several objects.
    is_unclear: bool,
    /// The Spec names the object since the call, by an import id that the call did not have.
    is_named: bool,
}

/// The results of the search.
struct Findings {
    own: Option<Result<Found, RuntimeError>>,
    others: Vec<Result<Found, RuntimeError>>,
}

/// The resources of lost calls whose objects exist and are ours, with these objects.
pub(crate) type Ours = BTreeMap<ResourceId, Option<KubernetesObject>>;

/// The recovered records so far.
struct Known {
    resources: BTreeMap<ResourceId, StateResource>,
    ours: Ours,
}

/// The state with the results of lost calls. Objects with our owner annotation are recorded as ours, so that they are
/// updated or deleted. Objects that others created in place of recorded ones are not. The open calls stay in the state,
/// since the observer needs a result of each.
pub(crate) async fn decide(runtime: &dyn Runtime, spec: &Spec, state: &State) -> Result<State, Undecided> {
    Ok(find(runtime, spec, state).await?.0)
}

/// The same, with the objects that were found.
pub(crate) async fn find(runtime: &dyn Runtime, spec: &Spec, state: &State) -> Result<(State, Ours), Undecided> {
    let resources = state.resources.iter().map(|resource| (resource.id.clone(), resource.clone())).collect();
    let mut known = Known { resources, ours: Ours::new() };
    let open = state.open.iter().filter(|call| call.needs_recovery(known.resources.contains_key(&call.id)));
    let sought: Vec<Search<'_>> = open
        .filter_map(|call| {
            let wanted = spec.resources.iter().find(|resource| resource.id == call.id);
            search(runtime.kubernetes().clusters(), call, wanted, known.resources.get(&call.id))
        })
        .collect();
    if sought.is_empty() {
        return Ok((state.clone(), Ours::new()));
    }
    let places: Vec<&StateResource> = sought.iter().flat_map(|it| it.own.iter().chain(&it.others)).collect();
    let mut found = runtime.inspect(&places).await.map_err(Undecided::Runtime)?.into_iter();
    let (mut problems, mut empty) = (Vec::new(), BTreeMap::new());
    for sought in &sought {
        let own = sought.own.as_ref().and_then(|_| found.next());
        let looked = Findings { own, others: found.by_ref().take(sought.others.len()).collect() };
        empty.insert(&sought.call.id, looked.absent_clusters(runtime.kubernetes().clusters(), sought));
        problems.extend(decide_call(runtime, &mut known, sought, looked)?);
    }
    if !problems.is_empty() {
        return Err(Undecided::Problems(problems));
    }
    let left = |mut call: OpenCall| {
        if call.retry {
            // A user confirmed that nothing is there, so that the next call is not searched there.
            call.place.clusters.retain(|cluster| runtime.kubernetes().clusters().has(cluster));
        }
        // Clusters without the object are dropped, if the resource or its record has a target. Otherwise only the call
        // does.
        let is_placed = spec.resources.iter().any(|it| it.id == call.id) || known.resources.contains_key(&call.id);
        if let Some(empty) = empty.get(&call.id).filter(|_| is_placed) {
            call.place.clusters.retain(|cluster| !empty.contains(cluster));
        }
        call
    };
    let open = state.open.iter().cloned().map(left).collect();
    Ok((State { resources: known.resources.into_values().collect(), open }, known.ours))
}

impl Findings {
    /// The clusters in which nothing of a call was found at any location.
    fn absent_clusters(&self, clusters: &Clusters, sought: &Search<'_>) -> BTreeSet<String> {
        let (mut empty, mut others) = (BTreeSet::new(), BTreeSet::new());
        let places = sought.own.iter().zip(&self.own).chain(sought.others.iter().zip(&self.others));
        for (place, found) in places {
            let told = match found {
                Ok(Found::Absent | Found::Foreign) => &mut empty,
                Ok(Found::Ours(_) | Found::Unknowable) | Err(_) => &mut others,
            };
            told.insert(clusters.of_recorded(place).to_owned());
        }
        empty.retain(|cluster| !others.contains(cluster));
        empty
    }
}

/// The locations of a lost call; `None` when nothing can be decided about it.
fn search<'a>(
    clusters: &Clusters,
    call: &'a OpenCall,
    wanted: Option<&Resource>,
    recorded: Option<&StateResource>,
) -> Option<Search<'a>> {
    // The object existed before, and only its resource, which is gone, decided whether it may be deleted.
    if call.action == Action::Adopt && wanted.is_none() && recorded.is_none() {
        return None;
    }
    let named = recorded.map_or_else(|| unrecorded_objects(call, wanted), |recorded| vec![recorded.clone()]);
    let (first, is_unclear) = (named.first()?, named.len() > 1);
    if clusters.is_empty() || first.kind != ResourceType::Kubernetes {
        let import_id = |wanted: &Resource| wanted.extensions.get(IMPORT_ID)?.as_str().map(str::to_owned);
        let named_now = wanted.filter(|wanted| wanted.kind != ResourceType::Kubernetes).and_then(import_id);
        let is_named = named_now.is_some_and(|id| !id.is_empty() && id != call.place.import_id);
        let (own, others) = if recorded.is_some() { (Some(first.clone()), Vec::new()) } else { (None, named) };
        return Some(Search { call, own, others, beyond: None, is_unclear, is_named });
    }
    let home = clusters.of_recorded(first);
    let goal = wanted.map(|wanted| clusters.of_wanted(wanted));
    // An adopted object is ours only where it is wanted.
    let said = call.place.clusters.iter().map(String::as_str).filter(|_| call.action != Action::Adopt);
    let mut places: Vec<&str> = said.filter(|cluster| recorded.is_none() || *cluster != home).collect();
    if recorded.is_none() && places.is_empty() {
        places.push(home);
    }
    let beyond = places.iter().find(|cluster| !clusters.has(cluster)).map(|cluster| (*cluster).to_owned());
    places.retain(|cluster| clusters.has(cluster));
    let has_home = recorded.is_some() && clusters.has(home);
    if let Some(goal) = goal.filter(|goal| !places.contains(goal))
        && (beyond.is_some() || (recorded.is_some() && !has_home))
    {
        // A cluster may have got another name.
        places.push(goal);
    }
    // Of several objects, the wanted one stays.
    places.sort_by_key(|cluster| Some(*cluster) != goal);
    let own = has_home.then(|| first.clone().in_cluster(home.to_owned()));
    // After a change of the default namespace, the recreated object is in the new one.
    let is_default = |recorded: &str| [recorded, ""].contains(&clusters.default_namespace(home));
    let moved = first.default_namespace().filter(|recorded| has_home && !is_default(recorded)).map(|_| home);
    let is_there =
        |cluster: &str| named.iter().map(|named| named.clone().created_in_cluster(cluster)).collect::<Vec<_>>();
    let others: Vec<StateResource> = moved.into_iter().chain(places).flat_map(is_there).collect();
    // The planner reports an unreadable recorded location.
    let is_sought = own.is_some() || !others.is_empty() || beyond.is_some();
    is_sought.then_some(Search { call, own, others, beyond, is_unclear, is_named: false })
}

/// The objects that an unrecorded call may have created: several if its id is ambiguous and its resource has left the
/// Spec.
fn unrecorded_objects(call: &OpenCall, wanted: Option<&Resource>) -> Vec<StateResource> {
    let kind = wanted.map_or(call.place.kind, |wanted| wanted.kind);
    if kind != ResourceType::Kubernetes {
        let extensions = wanted.map_or_else(|| call.place.extensions(), Resource::recorded_extensions);
        return vec![StateResource { id: call.id.clone(), kind, extensions, ..StateResource::default() }];
    }
    let Some(named) = StateResource::named_by(&call.id) else { return Vec::new() };
    let object = wanted.and_then(|wanted| ObjectRef::of(&wanted.attributes));
    let named = match (named.without_namespace(), object) {
        (Some(unplaced), Some(object)) if object.namespace.is_empty() => vec![unplaced],
        (Some(unplaced), None) => vec![unplaced, named],
        (Some(_), Some(_)) | (None, _) => vec![named],
    };
    let extensions = wanted.map_or_else(|| call.place.extensions(), Resource::recorded_extensions);
    // No record has that the object existed before.
    let is_adopted = call.action == Action::Adopt;
    let of_call = |named: StateResource| StateResource { extensions: extensions.clone(), ..named }.adopted(is_adopted);
    named.into_iter().map(of_call).collect()
}

/// Decides about one call; what is wrong with it, if anything.
fn decide_call(
    runtime: &dyn Runtime,
    known: &mut Known,
    sought: &Search<'_>,
    looked: Findings,
) -> Result<Option<Problem>, Undecided> {
    let id = &sought.call.id;
    let is_recorded = known.resources.contains_key(id);
    let may_have_made = sought.call.may_have_made(is_recorded);
    // An ambiguous id may also name the object of another record.
    let is_of_another = |found: &Result<Found, RuntimeError>| match found {
        Ok(Found::Ours(applied)) => sought.is_unclear && known.has_uid(applied),
        Ok(Found::Absent | Found::Foreign | Found::Unknowable) | Err(_) => false,
    };
    let others: Vec<Result<Found, RuntimeError>> =
        looked.others.into_iter().map(|found| if is_of_another(&found) { Ok(Found::Absent) } else { found }).collect();
    let mut others = sought.others.iter().zip(others);
    let (own, own_place) = match (looked.own, &sought.own) {
        (Some(found), Some(place)) => (found, place.clone()),
        // It is recorded nowhere: what there is of it decides, and the first of what there is not.
        _ => match others.next() {
            Some((place, found)) => (found, place.clone()),
            None => return Ok(unreadable_cluster(sought)),
        },
    };
    // The call created another object, and the recorded one stays, such as an imported one in its former cluster.
    let is_beside = matches!(own, Ok(Found::Ours(_))) && is_recorded && sought.call.action == Action::Create;
    // The planner adopts the object of a provider that the Spec names.
    if !is_recorded
        && own_place.kind != ResourceType::Kubernetes
        && (sought.is_named || matches!(own, Ok(Found::Ours(_))))
    {
        return Ok(None);
    }
    // Otherwise, an object at its recorded location was not deleted, so that no other was created.
    if let Ok(Found::Ours(applied)) = &own
        && !is_beside
    {
        known.record(runtime, own_place, applied);
        return Ok(None);
    }
    let mut failed = None;
    for (place, found) in others {
        match found {
            Ok(Found::Ours(applied)) if is_beside => {
                known.record_beside(runtime.kubernetes().clusters(), sought.call, place, &applied);
            }
            Ok(Found::Ours(applied)) => {
                known.record(runtime, place.clone(), &applied);
                return Ok(None);
            }
            Ok(Found::Absent | Found::Foreign | Found::Unknowable) => {}
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    match failed {
        // An unrecorded object would get lost.
        Some(error) if error.is_retryable() => return Err(Undecided::Runtime(error)),
        Some(error) => return Ok(Some(problem(id, &error, &Sensitive::default()))),
        None => {}
    }
    if may_have_made && let Some(problem) = unreadable_cluster(sought) {
        return Ok(Some(problem));
    }
    match own {
        Ok(Found::Ours(applied)) => known.record(runtime, own_place, &applied),
        Ok(Found::Absent) => {}
        // The call is repeatable, and the planner decides about the owner.
        Ok(Found::Foreign | Found::Unknowable) if !may_have_made => {}
        Ok(Found::Unknowable) if sought.call.retry => {}
        // The named object is adopted in place of the recorded one.
        Ok(Found::Unknowable) if sought.is_named => drop(known.resources.remove(id)),
        Ok(Found::Foreign) => drop(known.resources.remove(id)),
        Ok(Found::Unknowable) => drop(known.resources.insert(id.clone(), StateResource { unknown: true, ..own_place })),
        // An unavailable cluster blocks no other: its records and open calls stay. An unrecorded object would get lost.
        Err(error) if error.is_retryable() && runtime.kubernetes().clusters().names().len() > 1 && is_recorded => {}
        Err(error) if error.is_retryable() => return Err(Undecided::Runtime(error)),
        Err(error) => return Ok(Some(problem(id, &error, &Sensitive::default()))),
    }
    Ok(None)
}

impl Known {
    /// Whether a found object is on record.
    fn has_uid(&self, applied: &Applied) -> bool {
        let uid = uid_of(&applied.live);
        uid.is_some() && self.resources.values().any(|record| record.uid() == uid)
    }

    /// Records an object that a call created beside the recorded one: under an id with its cluster, unless another id
    /// has it on record.
    fn record_beside(&mut self, clusters: &Clusters, call: &OpenCall, place: &StateResource, applied: &Applied) {
        let found = found_at(place, applied).as_found();
        let is_it = |record: &StateResource| {
            (record.uid().is_some() && record.uid() == found.uid()) || is_same(clusters, record, &found)
        };
        if !self.resources.values().any(is_it) {
            let id = id_in(&call.id, &found.cluster);
            let extensions = call.place.extensions();
            let record = StateResource { id: id.clone(), extensions, adopted: false, ..found };
            self.resources.entry(id).or_insert(record);
        }
    }

    /// Records what was found, unless it is what is recorded.
    fn record(&mut self, runtime: &dyn Runtime, place: StateResource, applied: &Applied) {
        self.ours.insert(place.id.clone(), applied.kubernetes.clone());
        let resources = &mut self.resources;
        let found = found_at(&place, applied);
        if found.uid() == place.uid() && resources.contains_key(&place.id) {
            return;
        }
        // The same object may be recorded under its former id.
        let others = resources
            .values_mut()
            .filter(|other| other.id != place.id && is_same(runtime.kubernetes().clusters(), other, &found));
        others.for_each(|other| *other = other.clone().found(&applied.live, other.cluster.clone()));
        resources.insert(place.id, found);
    }
}

/// The record of an object that was found at a location.
fn found_at(place: &StateResource, applied: &Applied) -> StateResource {
    let cluster = applied.kubernetes.as_ref().map(|object| object.cluster.clone()).unwrap_or_default();
    place.clone().found(&applied.live, cluster)
}

/// Replacements whose new object seems to exist: an unrecorded object of ours at the wanted location. An object with
/// the recorded uid, or in another cluster, was not deleted yet.
pub(crate) fn made_anew(clusters: &Clusters, spec: &Spec, looked: &State, recorded: &State) -> HashSet<ResourceId> {
    let uids: HashSet<&str> = recorded.resources.iter().filter_map(StateResource::uid).collect();
    let replaced: HashSet<&ResourceId> =
        looked.open.iter().filter(|call| call.action == Action::Replace).map(|call| &call.id).collect();
    let found = looked
        .resources
        .iter()
        .filter(|record| replaced.contains(&record.id) && record.uid().is_some_and(|uid| !uids.contains(uid)));
    let is_where_wanted = |record: &&StateResource| {
        let wanted = spec.resources.iter().find(|wanted| wanted.id == record.id);
        wanted.is_some_and(|wanted| clusters.is_at_target(record, wanted))
    };
    found.filter(is_where_wanted).map(|record| record.id.clone()).collect()
}

/// The problem of a call to a cluster that the workspace does not have, unless a user confirmed its absence.
fn unreadable_cluster(sought: &Search<'_>) -> Option<Problem> {
    let cluster = sought.beyond.as_ref().filter(|_| !sought.call.retry)?;
    let message = format!(
        "an earlier call may have created it in cluster {cluster}, which the workspace does not have; add a cluster \
         of that name to let Stoa check; if it does not exist there, name its id in spec.retry of a Run; if the \
         cluster no longer exists, name it in spec.forgetClusters"
    );
    Some(Problem::new(reason::NO_RUNTIME, message).of(&sought.call.id).at("extensions.cluster"))
}

/// The target of an action, with those of earlier lost calls.
pub(crate) fn call_target(
    clusters: &Clusters,
    planned: &PlannedAction,
    wanted: Option<&Resource>,
    prior: Option<&StateResource>,
    open: Option<&CallTarget>,
) -> CallTarget {
    let wanted = wanted.filter(|_| planned.action.keeps());
    let kind = wanted.map_or(planned.kind, |wanted| wanted.kind);
    let mut place = CallTarget {
        kind,
        clusters: open.map(|open| open.clusters.clone()).unwrap_or_default(),
        ..CallTarget::default()
    };
    let objects =
        [prior.map(|it| (it.kind, clusters.of_recorded(it))), wanted.map(|it| (it.kind, clusters.of_wanted(it)))];
    for (kind, cluster) in objects.into_iter().flatten() {
        if kind == ResourceType::Kubernetes && !cluster.is_empty() {
            // Messages name the last cluster.
            place.clusters.retain(|it| it != cluster);
            place.clusters.push(cluster.to_owned());
        }
    }
    let extensions = wanted.map(|it| &it.extensions).or(prior.map(|it| &it.extensions));
    let import_id = extensions.map(|it| it.get(IMPORT_ID).and_then(|id| id.as_str()).unwrap_or_default());
    place.import_id = import_id.or(open.map(|open| open.import_id.as_str())).unwrap_or_default().to_owned();
    place
}

/// The object that a record is of, in no version, and where it is.
pub(crate) fn object<'a>(clusters: &'a Clusters, record: &'a StateResource) -> Option<(&'a str, ObjectRef)> {
    let object = clusters.recorded_object(record)?;
    Some((clusters.location(clusters.of_recorded(record), &object), ObjectRef { version: String::new(), ..object }))
}

/// Whether two records are of one object.
fn is_same(clusters: &Clusters, a: &StateResource, b: &StateResource) -> bool {
    object(clusters, a).is_some_and(|a| object(clusters, b) == Some(a))
}

/// The problem of each resource about which a person has to decide.
pub(crate) fn unknown(state: &State) -> Vec<Problem> {
    state.resources.iter().filter(|resource| resource.unknown).map(|resource| unknown_state(&resource.id)).collect()
}

/// The state for an import, which makes no calls: unknown resources do not block other ones, and those that it
/// `decides` about are left out.
pub(crate) fn for_import(state: State, decides: impl Fn(&ResourceId) -> bool) -> State {
    let resources = state.resources.into_iter().filter(|resource| !(resource.unknown && decides(&resource.id)));
    let resources = resources.map(|resource| StateResource { unknown: false, ..resource }).collect();
    State { resources, open: state.open }
}
