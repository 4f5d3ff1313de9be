//! Finding records by id, slug, code or words.

use super::{Catalogue, Entry};

/// Most hits of a search by words.
const MOST_HITS: usize = 50;

/// A record that was searched for.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Hit<'a> {
    /// The entry.
    pub entry: &'a Entry,
    /// How much of the question it holds; 1 is all, and more for the parts that name it.
    pub score: f64,
}

impl Catalogue {
    /// The entry with this id, slug or code. Of several with one code or slug, the first.
    pub fn find(&self, name: &str) -> Option<&Entry> {
        let name = name.trim();
        self.by_id(name)
            .or_else(|| self.entries().iter().find(|entry| entry.record.error_code.as_deref() == Some(name)))
            .or_else(|| self.entries().iter().find(|entry| entry.record.slug == name))
            .or_else(|| {
                let (repo, slug) = name.rsplit_once('/')?;
                self.entries().iter().find(|entry| entry.record.repo == repo && entry.record.slug == slug)
            })
    }

    /// Entries that hold all words of the question, best first: id, code and slug before message, tags and texts.
    pub fn search(&self, question: &str) -> Vec<Hit<'_>> {
        if let Some(entry) = self.find(question) {
            let others = self.entries().iter().filter(|other| {
                other.record.id != entry.record.id
                    && other.record.error_code.as_deref() == Some(question.trim())
            });
            return std::iter::once(entry).chain(others).map(|entry| Hit { entry, score: 10.0 }).collect();
        }
        let words: Vec<String> = question.to_lowercase().split_whitespace().map(str::to_owned).collect();
        let mut hits: Vec<_> = self
            .entries()
            .iter()
            .filter_map(|entry| Some(Hit { entry, score: score(entry, &words)? }))
            .collect();
        hits.sort_by(|a, b| {
            b.score.total_cmp(&a.score).then_with(|| a.entry.record.id.cmp(&b.entry.record.id))
        });
        hits.truncate(MOST_HITS);
        hits
    }
}

/// None unless every word is somewhere in the entry.
fn score(entry: &Entry, words: &[String]) -> Option<f64> {
    if words.is_empty() {
        return None;
    }
    let record = &entry.record;
    let weighted = [
        (4.0, record.error_message.to_lowercase()),
        (4.0, record.error_code.as_deref().unwrap_or_default().to_lowercase()),
        (3.0, format!("{} {}", record.slug, record.repo).to_lowercase()),
        (3.0, entry.side.kind.clone().unwrap_or_default()),
        (2.0, record.tags.join(" ")),
        (1.0, record.documentation.to_lowercase()),
        (1.0, format!("{} {}", record.trigger_scenarios, record.common_situations).to_lowercase()),
        (1.0, record.solutions.join(" ").to_lowercase()),
    ];
    let mut sum = 0.0;
    for word in words {
        let best =
            weighted.iter().filter(|(_, text)| text.contains(word.as_str())).map(|(weight, _)| *weight);
        sum += best.fold(None, |best: Option<f64>, weight| Some(best.map_or(weight, |b| b.max(weight))))?;
    }
    #[expect(clippy::cast_precision_loss, reason = "a question has few words")]
    Some(sum / words.len() as f64)
}
