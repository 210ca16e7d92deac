"""Files that others run, or obey, without being asked to: changed only when a person says so (SEC-9).

What stands here is run by a program that the user starts for another reason: a shell that opens, git that commits, an
editor that opens the folder, a package manager that installs, a server that builds what was pushed. What a person runs
by name isn't here: Makefile, conftest.py, package.json, setup.py and build.rs are an agent's ordinary work.
"""

from __future__ import annotations

from functools import lru_cache

from holdfast.transcript.globs import expanded, fits, meets

# Patterns of paths in lower case, at any depth; and why they are asked about.
PROTECTED: tuple[tuple[str, str], ...] = (
    (
        ".git .git/** .hg .hg/** .svn .svn/** .jj .jj/** .bzr .bzr/** .gitmodules .gitattributes .gitconfig .hgrc "
        ".lfsconfig .config/git/** .config/jj/** head commondir",
        "version control reads it, and runs what it names",
    ),
    (
        ".husky .husky/** .githooks .githooks/** githooks/** .git-hooks/** git-hooks/** hooks/{pre,post}-* "
        "hooks/commit-msg .pre-commit-config.{yaml,yml} .pre-commit-hooks.{yaml,yml} "
        "{.,}lefthook{-local,}.{yml,yaml,toml,json} .overcommit.yml .overcommit/** .huskyrc* .lintstagedrc* "
        ".simple-git-hooks.{json,js,cjs} captainhook.json",
        "git hooks come from it",
    ),
    (
        ".bashrc .bash_profile .bash_login .bash_logout .bash_aliases .bash_env .profile .zshrc .zshenv .zprofile "
        ".zlogin .zlogout .zsh_plugins.txt .oh-my-zsh/** .kshrc .mkshrc .cshrc .tcshrc .login .logout .inputrc "
        ".config/fish/** .config/nushell/** .config/environment.d/** .pam_environment .xprofile .xinitrc "
        ".xsession .xsessionrc .envrc .direnvrc .config/direnv/** .tmux.conf .screenrc .config/powershell/** "
        "microsoft.powershell_profile.ps1 .local/bin/** .config/zsh/**",
        "a shell runs it when it starts",
    ),
    (
        ".config/autostart/** .config/systemd/** .local/share/applications/** library/launchagents/** "
        "library/launchdaemons/** .crontab crontab",
        "the system runs it by itself",
    ),
    (
        ".ssh .ssh/** .gnupg .gnupg/** .netrc .curlrc .wgetrc .aws/** .kube/config .docker/config.json "
        ".config/gcloud/** .azure/** .git-credentials .pgpass .my.cnf",
        "it decides where programs connect, and as whom",
    ),
    (
        ".vscode .vscode/** *.code-workspace .idea .idea/** .vs/** .fleet/** .zed/** .devcontainer "
        ".devcontainer/** .devcontainer.json .gitpod.yml .gitpod.yaml .vimrc .gvimrc .exrc .ideavimrc .nvimrc "
        ".nvim.lua .vim/** .config/nvim/** .emacs .emacs.d/** .dir-locals.el .nanorc .gdbinit .lldbinit "
        ".lldbinit-* .lvimrc",
        "an editor or debugger runs it when it opens the folder",
    ),
    (
        ".npmrc .yarnrc .yarnrc.yml .yarnrc.yaml .yarn/{releases,plugins}/** .pnpmfile.{cjs,js,mjs} "
        "pnpmfile.{cjs,js} .pnp.{cjs,js,loader.mjs} bunfig.toml pip.conf pip.ini .config/pip/** .pip/** .pypirc "
        ".pydistutils.cfg uv.toml .config/uv/** .condarc .cargo/config .cargo/config.toml .cargo/credentials* "
        "rust-toolchain rust-toolchain.toml .gemrc .bundle/config .mvn/** .m2/settings.xml .gradle/** "
        "gradle/wrapper/** .sdkmanrc nuget.config .config/nuget/** .tool-versions {.,}mise.toml {.,}mise.*.toml "
        ".mise/** .config/mise/** .asdfrc .hermit/** .netlify/** go.env .config/go/env composer/auth.json",
        "a package manager or tool switcher takes programs, and where to get them, from it",
    ),
    (
        "sitecustomize.py usercustomize.py *.pth pyvenv.cfg .pdbrc .pdbrc.py .pythonrc .pythonrc.py "
        ".pythonstartup .ipython/** .jupyter/** .rprofile .renviron .irbrc .pryrc .psqlrc .sqliterc .ghci .guile "
        ".octaverc .perldb .iex.exs .erlang",
        "an interpreter runs it whenever it starts",
    ),
    (
        ".venv/** venv/{bin,scripts,lib,lib64}/** env/{bin,scripts}/** node_modules/.bin/** .direnv/** .tox/** .nox/**",
        "it holds programs that others find by name",
    ),
    (
        ".github/workflows/** .github/actions/** .github/*.{yml,yaml} .gitlab-ci.yml .gitlab-ci.yaml .gitlab/** "
        ".circleci/** .travis.yml .drone.yml .drone.star azure-pipelines.{yml,yaml} .azure-pipelines/** "
        "jenkinsfile jenkinsfile.* .jenkins/** .buildkite/** bitbucket-pipelines.yml {.,}appveyor.{yml,yaml} "
        ".woodpecker.{yml,yaml} .woodpecker/** .forgejo/** .gitea/** .cirrus.yml .cirrus.star .teamcity/** "
        ".semaphore/** {.,}renovate.json{,5} .renovaterc* cloudbuild.{yaml,yml} buildspec.{yml,yaml}",
        "a build server runs it with its own rights",
    ),
    (
        "claude.md claude.local.md agents.md agents.override.md agent.md gemini.md qwen.md .cursorrules "
        ".windsurfrules .clinerules .clinerules/** .roorules .goosehints .github/copilot-instructions.md "
        ".github/{instructions,prompts,chatmodes,agents}/** .rules .holdfast .holdfast/** .claude .claude/** "
        ".claude.json .codex .codex/** .gemini .gemini/** .cursor .cursor/** .windsurf/** .roo/** .continue/** "
        ".opencode/** opencode.{json,jsonc} .aider.conf.yml .aider* .amazonq/** .kiro/** .junie/** .agents/** "
        ".mcp.json mcp.json .mcp/**",
        "agents take instructions, permissions or programs from it",
    ),
)


@lru_cache(maxsize=1)
def _tables() -> tuple[dict[str, str], dict[str, str], tuple[tuple[str, str], ...]]:
    """Names of files, names of folders with all that is in them, and the other patterns."""
    files: dict[str, str] = {}
    folders: dict[str, str] = {}
    others: list[tuple[str, str]] = []
    for patterns, why in PROTECTED:
        for pattern in (one for glob in patterns.split() for one in expanded(glob)):
            name = pattern.removesuffix("/**")
            if set(name) & set("*?[/"):
                others.append((f"**/{pattern}", why))
            else:
                (folders if name != pattern else files)[name] = why
    return files, folders, tuple(others)


def protected(path: str) -> str:
    """Why a file is asked about before it is written; empty when it isn't.

    Args:
        path: an absolute path. Upper and lower case are one here, as they are on many disks.

    Returns:
        The reason, for people.
    """
    files, folders, others = _tables()
    *above, name = path.lower().split("/")
    if why := files.get(name) or next((folders[one] for one in above if one in folders), ""):
        return why
    return next((why for pattern, why in others if fits(pattern, path.lower())), "")


def may_be_protected(glob: str) -> str:
    """The same for a pattern of absolute paths, as a shell fills it in: why one of them would be asked about."""
    low = glob.lower()
    found = (why for patterns, why in PROTECTED for pattern in patterns.split() if meets(f"**/{pattern}", low))
    return next(found, "")
