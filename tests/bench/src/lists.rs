//! Lists, in the forms that clients ask for.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http::HeaderValue;
use serde::Deserialize;

use crate::client::{Answer, Call, Client};
use crate::load::{self, Done, Load};
use crate::measure::{Experiment, MeasuredCollection, Turn};
use crate::scene::{self, SHARD, SHARDS};

/// A way to ask for a list that is answered at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    pub(crate) title: &'static str,
    accept: &'static str,
    gzip: bool,
    /// Of which objects the number modulo [`SHARDS`] is this; all without one.
    shard: Option<usize>,
}

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

impl Form {
    /// Plain JSON.
    pub(crate) const JSON: Self = Self { title: "JSON", accept: "application/json", gzip: false, shard: None };
    /// JSON as Go's clients ask for it.
    pub(crate) const GZIP: Self = Self { title: "JSON, gzip", gzip: true, ..Self::JSON };
    /// All but [`Form::JSON`].
    pub(crate) const OTHERS: [Self; 5] = [
        Self::GZIP,
        Self { title: "Table", accept: TABLE, ..Self::JSON },
        Self { title: "Table, gzip", accept: TABLE, ..Self::GZIP },
        Self { title: "metadata alone", accept: METADATA, ..Self::JSON },
        Self { title: "one in 100, by label", shard: Some(7), ..Self::JSON },
    ];

    /// The request.
    pub(crate) fn call(self, collection: &str) -> Call {
        let call = match self.shard {
            None => Call::get(collection),
            Some(shard) => Call::get(format!("{collection}?labelSelector={SHARD}%3D{shard}")),
        };
        let call = call.accept(HeaderValue::from_static(self.accept));
        if self.gzip { call.gzip() } else { call }
    }
}

#[derive(Debug, Deserialize)]
struct List {
    #[serde(default)]
    metadata: ListMetadata,
    #[serde(default)]
    items: Vec<Item>,
    #[serde(default)]
    rows: Vec<Row>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    #[serde(default)]
    resource_version: String,
    #[serde(default)]
    r#continue: String,
}

#[derive(Debug, Deserialize)]
struct Row {
    cells: Vec<serde_json::Value>,
    object: Item,
}

#[derive(Debug, Deserialize)]
struct Item {
    metadata: Metadata,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    #[serde(default)]
    resource_version: String,
}

/// Makes sure that a list has all objects and no others, of `objects` that there are.
///
/// # Errors
///
/// When it has not.
pub(crate) fn check(form: Form, text: &[u8], objects: usize) -> Result<()> {
    let list: List = serde_json::from_slice(text).context("the answer is no list")?;
    ensure!(!list.metadata.resource_version.is_empty(), "the list has no resourceVersion");
    ensure!(list.metadata.r#continue.is_empty(), "the list goes on");
    if form.accept == TABLE {
        ensure!(list.rows.iter().all(|row| row.cells.len() > 1), "the table has too few columns");
    }
    let names = list.items.iter().chain(list.rows.iter().map(|row| &row.object));
    check_names(names, (0..objects).filter(|number| form.shard.is_none_or(|shard| number % SHARDS == shard)))
}

fn check_names<'a>(items: impl Iterator<Item = &'a Item>, expected: impl Iterator<Item = usize>) -> Result<()> {
    let mut items = items.peekable();
    for number in expected {
        let item = items.next().with_context(|| format!("the list ends before {}", scene::name(number)))?;
        ensure!(
            item.metadata.name == scene::name(number),
            "{} is in the place of {}",
            item.metadata.name,
            scene::name(number)
        );
        ensure!(!item.metadata.resource_version.is_empty(), "{} has no resourceVersion", item.metadata.name);
    }
    ensure!(items.peek().is_none(), "the list has more than there should be: {:?}", items.next());
    Ok(())
}

/// Clients that list everything, all at once.
#[derive(Debug)]
pub(crate) struct Lists {
    pub(crate) form: Form,
    pub(crate) clients: usize,
    pub(crate) objects: usize,
    pub(crate) load: Load,
}

impl Experiment for Lists {
    type Ready = Vec<Client>;
    type Output = Vec<Done>;

    async fn prepare(&self, target: &MeasuredCollection, _: usize) -> Result<Vec<Client>> {
        let mut clients = target.clients(self.clients).await?;
        // The first of its kind is not what anybody waits for every day.
        clients[0].succeed(&self.form.call(&target.collection)).await?;
        Ok(clients)
    }

    async fn work(&self, target: &MeasuredCollection, _: usize, clients: Vec<Client>) -> Result<Turn<Vec<Done>>> {
        let call = self.form.call(&target.collection);
        load::run(target, clients, self.load, move |_, _| Some(call.clone())).await
    }

    async fn check(&self, _: &MeasuredCollection, _: usize, output: Vec<Done>) -> Result<usize> {
        let bytes = output.first().map_or(0, |done| done.answer.wire_bytes());
        for done in output {
            check(self.form, &done.answer.text()?, self.objects)?;
        }
        Ok(bytes)
    }
}

/// One client that reads everything in pages.
#[derive(Debug)]
pub(crate) struct Pages {
    pub(crate) page: usize,
    pub(crate) objects: usize,
    pub(crate) load: Load,
}

impl Experiment for Pages {
    type Ready = Client;
    type Output = Vec<Vec<Answer>>;

    async fn prepare(&self, target: &MeasuredCollection, _: usize) -> Result<Client> {
        target.clients(1).await?.pop().context("there is no client")
    }

    async fn work(&self, target: &MeasuredCollection, _: usize, mut client: Client) -> Result<Turn<Vec<Vec<Answer>>>> {
        let first = format!("{}?limit={}", target.collection, self.page);
        let (started, mut latencies, mut output) = (Instant::now(), Vec::new(), Vec::new());
        while output.len() < self.load.most && (output.is_empty() || started.elapsed() < self.load.least) {
            let (asked, mut pages, mut path) = (Instant::now(), Vec::new(), Some(first.clone()));
            while let Some(page) = path.take() {
                let answer = client.succeed(&Call::get(page)).await?;
                path = next_page(&answer)?.map(|token| format!("{first}&continue={token}"));
                pages.push(answer);
            }
            latencies.push(asked.elapsed());
            output.push(pages);
        }
        let elapsed = started.elapsed();
        target.put_back(vec![client]);
        Ok(Turn { units: latencies.len(), latencies, elapsed, output })
    }

    async fn check(&self, _: &MeasuredCollection, _: usize, output: Vec<Vec<Answer>>) -> Result<usize> {
        let bytes = output.first().map_or(0, |pages| pages.iter().map(Answer::wire_bytes).sum());
        for pages in output {
            ensure!(pages.len() == self.objects.div_ceil(self.page), "there are {} pages", pages.len());
            let lists = pages.iter().map(|page| Ok(serde_json::from_slice::<List>(&page.text()?)?));
            let lists: Vec<List> = lists.collect::<Result<_>>()?;
            let version = &lists[0].metadata.resource_version;
            ensure!(lists.iter().all(|list| list.metadata.resource_version == *version), "pages of several versions");
            check_names(lists.iter().flat_map(|list| &list.items), 0..self.objects)?;
        }
        Ok(bytes)
    }
}

/// The token of the next page, ready for a URL. Looks for it rather than parse the page: what is measured is the
/// server, and the token is at one end or the other.
pub(crate) fn next_page(answer: &Answer) -> Result<Option<String>> {
    const KEY: &[u8] = b"\"continue\":\"";
    const END: usize = 2048;
    let text = answer.text()?;
    let ends = [&text[..text.len().min(END)], &text[text.len().saturating_sub(END)..]];
    let token = ends.into_iter().find_map(|end| {
        let start = end.windows(KEY.len()).position(|window| window == KEY)? + KEY.len();
        let length = end[start..].iter().position(|byte| *byte == b'"')?;
        String::from_utf8(end[start..start + length].to_vec()).ok()
    });
    let token = token.filter(|token| !token.is_empty());
    Ok(token.map(|token| token.replace('%', "%25").replace('+', "%2B").replace('=', "%3D").replace('/', "%2F")))
}

/// One client that lists by watching: what informers do since Kubernetes 1.35.
#[derive(Debug)]
pub(crate) struct Streaming {
    pub(crate) objects: usize,
    pub(crate) load: Load,
}

#[derive(Debug, Deserialize)]
struct Event {
    r#type: String,
    object: serde_json::Value,
}

impl Experiment for Streaming {
    type Ready = Client;
    type Output = Vec<Vec<Bytes>>;

    async fn prepare(&self, target: &MeasuredCollection, _: usize) -> Result<Client> {
        target.clients(1).await?.pop().context("there is no client")
    }

    async fn work(&self, target: &MeasuredCollection, _: usize, mut client: Client) -> Result<Turn<Vec<Vec<Bytes>>>> {
        let call = Call::get(format!(
            "{}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
            target.collection
        ));
        let (started, mut latencies, mut output) = (Instant::now(), Vec::new(), Vec::new());
        while output.len() < self.load.most && (output.is_empty() || started.elapsed() < self.load.least) {
            let asked = Instant::now();
            let mut lines = client.stream(&call).await?;
            output.push(lines.until("k8s.io/initial-events-end").await?);
            latencies.push(asked.elapsed());
            drop(lines);
            if !client.is_multiplexed() {
                // The watch goes on, and with it the connection's only answer.
                client = target.endpoint.connect().await?;
            }
        }
        let elapsed = started.elapsed();
        target.put_back(vec![client]);
        Ok(Turn { units: latencies.len(), latencies, elapsed, output })
    }

    async fn check(&self, _: &MeasuredCollection, _: usize, output: Vec<Vec<Bytes>>) -> Result<usize> {
        let bytes = output.first().map_or(0, |frames| frames.iter().map(Bytes::len).sum());
        for frames in output {
            let text = frames.concat();
            let events = serde_json::Deserializer::from_slice(&text).into_iter::<Event>();
            let mut events: Vec<Event> = events.collect::<Result<_, _>>().context("the watch is no JSON")?;
            let bookmark = events.pop().context("the watch is empty")?;
            ensure!(bookmark.r#type == "BOOKMARK", "the last event is {}", bookmark.r#type);
            ensure!(events.iter().all(|event| event.r#type == "ADDED"), "not all initial events are ADDED");
            let items = events.into_iter().map(|event| Ok(serde_json::from_value::<Item>(event.object)?));
            let mut items: Vec<Item> = items.collect::<Result<_>>()?;
            // Initial events come in any order.
            items.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
            check_names(items.iter(), 0..self.objects)?;
        }
        Ok(bytes)
    }
}
