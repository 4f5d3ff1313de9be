//! The form of a conversation that a chat model was trained on.

use anyhow::{Context, Result};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, context};

/// A Jinja template over `messages`, as model files carry it.
pub(crate) struct ChatTemplate(Environment<'static>);

impl ChatTemplate {
    /// Parses `template`.
    pub(crate) fn new(template: &str) -> Result<Self> {
        let mut environment = Environment::new();
        // Chat templates are written for these two settings.
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?;
        environment.set_syntax(syntax);
        environment
            .add_template_owned("chat", template.to_owned())
            .context("the model file's chat template cannot be parsed")?;
        Ok(Self(environment))
    }

    /// A conversation in which the user has said `text` and the assistant is to answer.
    pub(crate) fn apply(&self, text: &str) -> Result<String> {
        let template = self.0.get_template("chat")?;
        template
            .render(context! {
                messages => [context! { role => "user", content => text }],
                add_generation_prompt => true,
            })
            .context("the model file's chat template cannot be applied")
    }
}
