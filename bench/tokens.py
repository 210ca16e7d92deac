"""Speed and error of the token estimators (TOK-1).

    python bench/tokens.py                                         speed, and errors against what can be loaded
    python bench/tokens.py --tokenizer FILE --tiktoken-cache DIR   more tokenizers, as files; nothing is downloaded
    python bench/tokens.py --markdown                              the error tables as they stand in docs/how/tokens.md

The samples are the running Python's standard library, text generated from a fixed seed, and sentences written for
this file. None of it was used to fit the prices in `perdure.transcript.tokens`. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import base64
import difflib
import hashlib
import importlib.metadata
import json
import os
import pydoc
import random
import re
import statistics
import sys
import sysconfig
import tempfile
import time
import traceback
import uuid
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from perdure.transcript.tokens import base_tokens, live_tokens

Count = Callable[[str], int]
STDLIB = Path(sysconfig.get_path("stdlib"))
TIKTOKEN_FILES = {  # the names tiktoken gives its cached files
    "cl100k_base": "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
    "o200k_base": "fb374d419588a4632f3f557e76b4b70aebbca790",
}
MODULES = "json csv email.message http.client logging pathlib socket sqlite3 subprocess threading uuid zipfile".split()
DOC_CHARS = 4_000
DOCS_PER_CLASS = 24

SENTENCES = {
    "cjk_zh": (
        "这个函数在读取配置文件时没有检查空值，所以服务启动以后会直接崩溃。",
        "请先运行全部测试，再把修改合并到主分支。",
        "昨天晚上数据库迁移失败了，原因是磁盘空间不足。",
        "我们需要把缓存的有效期从五分钟改成一个小时。",
        "用户反馈说，登录页面在手机上显示不正常。",
        "日志里没有看到任何异常，但是接口返回的结果是错误的。",
        "建议把这段重复的代码提取成一个独立的模块，方便以后维护。",
        "如果网络连接中断，程序应该自动重试三次，然后提示用户。",
        "文档已经更新，新增了安装步骤和常见问题两个章节。",
        "这个版本修复了内存泄漏的问题，并且提高了搜索速度。",
    ),
    "cjk_ja": (
        "設定ファイルを読み込むときに値の確認をしていないため、起動後にエラーで終了します。",
        "まずすべてのテストを実行してから、変更をメインブランチに取り込んでください。",
        "昨夜のデータベース移行は、ディスクの空き容量が足りずに失敗しました。",
        "キャッシュの有効期限を五分から一時間に変更する必要があります。",
        "ログイン画面がスマートフォンで正しく表示されないという報告がありました。",
        "ログには例外が記録されていませんが、返ってくる結果が間違っています。",
        "重複しているコードを別のモジュールにまとめると、保守が楽になります。",
        "通信が切れた場合は三回まで再試行し、それでも駄目なら利用者に知らせます。",
        "ドキュメントを更新し、インストール手順とよくある質問を追加しました。",
        "この版ではメモリリークを修正し、検索の速度も改善しています。",
    ),
    "cjk_ko": (
        "설정 파일을 읽을 때 값을 확인하지 않아서 서버가 시작된 뒤에 바로 종료됩니다.",
        "먼저 모든 테스트를 실행한 다음 변경 사항을 메인 브랜치에 병합해 주세요.",
        "어젯밤 데이터베이스 이전 작업은 디스크 공간이 부족해서 실패했습니다.",
        "캐시 유효 시간을 오 분에서 한 시간으로 바꿔야 합니다.",
        "로그인 화면이 휴대전화에서 제대로 보이지 않는다는 의견이 있었습니다.",
        "로그에는 예외가 없지만 인터페이스가 돌려주는 결과가 잘못되었습니다.",
        "반복되는 코드를 별도의 모듈로 분리하면 나중에 관리하기 쉽습니다.",
        "연결이 끊어지면 세 번까지 다시 시도하고 사용자에게 알려야 합니다.",
        "문서를 고치고 설치 방법과 자주 묻는 질문을 추가했습니다.",
        "이번 버전에서는 메모리 누수를 고치고 검색 속도를 높였습니다.",
    ),
    "cyrillic": (
        "Функция не проверяет пустое значение при чтении настроек, поэтому сервис падает сразу после запуска.",
        "Сначала запустите все тесты, а потом отправляйте изменения в основную ветку.",
        "Вчера вечером перенос базы данных не удался: на диске закончилось место.",
        "Нужно увеличить срок хранения кэша с пяти минут до одного часа.",
        "Пользователи пишут, что страница входа неправильно выглядит на телефоне.",
        "В журнале нет ни одного исключения, но результат всё равно неверный.",
        "Повторяющийся код лучше вынести в отдельный модуль, так его проще поддерживать.",
        "Если соединение прервалось, программа должна повторить попытку три раза.",
    ),
    "latin_diacritics": (
        "La fonction ne vérifie pas la valeur lue dans le fichier, et le service s'arrête dès le démarrage.",
        "Exécutez d'abord tous les tests, puis intégrez vos modifications à la branche principale.",
        "Die Übertragung der Datenbank ist gestern Abend gescheitert, weil der Speicherplatz nicht ausreichte.",
        "Bitte prüfe zuerst, ob die Änderung auch für größere Dateien zuverlässig läuft.",
        "La página de inicio de sesión no se ve bien en el teléfono, según varios usuarios.",
        "Después de la actualización, la búsqueda es más rápida y ya no pierde memoria.",
        "Funkcja nie sprawdza pustej wartości, dlatego usługa kończy działanie zaraz po uruchomieniu.",
        "A versão nova corrige a falha de memória e também melhora a velocidade da pesquisa.",
    ),
}


# --- samples --------------------------------------------------------------------------------------------------------


def stdlib_sources(rng: random.Random) -> list[tuple[str, str]]:
    files = [f for f in sorted(STDLIB.glob("*.py")) + sorted(STDLIB.glob("[a-z]*/*.py")) if _is_plain(f)]
    read = [(str(f), f.read_text("utf-8", "replace")) for f in files if f.stat().st_size > 3_000]
    rng.shuffle(read)
    return read


def _is_plain(file: Path) -> bool:
    return not {"test", "tests", "site-packages", "pydoc_data", "encodings", "idlelib"} & set(file.parts)


def piece(text: str, rng: random.Random) -> str:
    """A stretch of 500 to 4,000 characters."""
    size = rng.randint(500, DOC_CHARS)
    start = rng.randint(0, max(0, len(text) - size))
    return text[start : start + size]


def sourced(rng: random.Random) -> Iterator[tuple[str, str]]:
    """Classes that are standard library text or views of it."""
    sources = stdlib_sources(rng)
    for index in range(DOCS_PER_CLASS):
        (path, text), (_, other) = sources[index], sources[-1 - index]
        lines = text.split("\n")
        yield "python", piece(text, rng)
        yield "python_numbered", piece("\n".join(f"{n:6}\t{line}" for n, line in enumerate(lines, 1)), rng)
        yield "diffs", piece(changed(path, lines, other.split("\n"), rng), rng)
        yield "paths", piece("\n".join(p for p, _ in sorted(sources[index * 3 : index * 3 + 60])), rng)
        word = ("import", "return", "self.", "raise", "None", "def ")[index % 6]
        some = rng.sample(sources, 12)
        hits = [f"{p}:{n}:{s}" for p, t in some for n, s in enumerate(t.split("\n"), 1) if word in s]
        yield "grep", piece("\n".join(hits), rng)
        packed = zlib.compress(text.encode() + other.encode())
        yield from dense(packed, rng)
    from pydoc_data.topics import topics

    manual = "\n".join(topics[name] for name in sorted(topics))
    for _ in range(DOCS_PER_CLASS):
        yield "manual", piece(manual, rng)
    for name in MODULES * 2:
        yield "help", piece(pydoc.plain(pydoc.render_doc(name, renderer=pydoc.plaintext)), rng)
        module = pydoc.locate(name)
        yield "html", piece(pydoc.HTMLDoc().document(module, name), rng)


def changed(path: str, lines: list[str], others: list[str], rng: random.Random) -> str:
    after = list(lines)
    for _ in range(10):
        at = rng.randrange(len(after) - 3)
        after[at : at + rng.randint(0, 3)] = rng.sample(others, rng.randint(0, 2))
    return "\n".join(difflib.unified_diff(lines, after, f"a{path}", f"b{path}", lineterm=""))


def dense(packed: bytes, rng: random.Random) -> Iterator[tuple[str, str]]:
    start = rng.randint(50, 400)
    data = packed[start : start + rng.randint(400, 2_500)]
    text = base64.b64encode(data).decode()
    yield "base64", text
    yield "base64_wrapped", "\n".join(text[at : at + 76] for at in range(0, len(text), 76))
    yield "hex", data[:1_500].hex()
    rows = [data[at : at + 16] for at in range(0, min(len(data), 900), 16)]
    shown = "".join(chr(code) if 32 <= code < 127 else "." for code in range(256))
    printed = [row.decode("latin-1").translate(shown) for row in rows]
    lines = [f"{n * 16:08x}  {row.hex(' ')}  |{printed[n]}|" for n, row in enumerate(rows)]
    yield "hex_dump", "\n".join(lines)
    ids = [(str(uuid.UUID(bytes=data[n : n + 16])), hashlib.sha256(data[n:]).hexdigest()) for n in range(0, 320, 16)]
    yield "ids", "\n".join(f"{one}  {two if n % 2 else two[:10]}" for n, (one, two) in enumerate(ids))


def generated(rng: random.Random) -> Iterator[tuple[str, str]]:
    """Classes made from a seed and a word list (the words of the language reference)."""
    from pydoc_data.topics import topics

    words = sorted({w.lower() for text in topics.values() for w in re.findall(r"[A-Za-z]{3,11}", text)})
    for _ in range(DOCS_PER_CLASS):
        records = [record(words, rng) for _ in range(rng.randint(4, 14))]
        yield "json_pretty", json.dumps(records, indent=2)[:DOC_CHARS]
        yield "json_compact", json.dumps(records, separators=(",", ":"))[:DOC_CHARS]
        yield "logs", "\n".join(log_line(words, rng) for _ in range(rng.randint(8, 40)))
        yield "table_padded", "\n".join(table_line(words, rng) for _ in range(rng.randint(10, 50)))
        yield "csv_numbers", "\n".join(",".join(number(rng) for _ in range(7)) for _ in range(40))
        yield "tracebacks", "\n".join(crash(rng) for _ in range(3))
    for name, sentences in SENTENCES.items():
        gap = "" if name in ("cjk_zh", "cjk_ja") else " "
        for _ in range(8):
            yield name, gap.join(rng.sample(sentences, len(sentences) - 2))


def record(words: list[str], rng: random.Random) -> dict[str, object]:
    return {
        "id": rng.randint(1, 10**6),
        "uuid": str(uuid.UUID(int=rng.getrandbits(128))),
        "name": f"{rng.choice(words)}_{rng.choice(words)}",
        "createdAt": f"2025-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}T{rng.randint(0, 23):02}:14:07Z",
        "enabled": rng.random() < 0.5,
        "score": round(rng.random(), 4),
        "path": f"/srv/{rng.choice(words)}/{rng.choice(words)}.py",
        "description": " ".join(rng.choices(words, k=rng.randint(3, 14))).capitalize() + ".",
        "labels": rng.sample(words, rng.randint(0, 4)),
        "owner": {
            "login": rng.choice(words),
            "url": f"https://example.org/u/{rng.choice(words)}?tab={rng.randint(1, 9)}",
        },
    }


def table_line(words: list[str], rng: random.Random) -> str:
    return f"{rng.choice(words):<20}{rng.choice(words):<16}{rng.randint(0, 99_999):>10}{rng.random() * 100:>12.2f}%"


def number(rng: random.Random) -> str:
    return f"{rng.gauss(0, 10 ** rng.randint(0, 5)):.{rng.randint(0, 4)}f}"


def log_line(words: list[str], rng: random.Random) -> str:
    stamp = f"2025-11-{rng.randint(1, 30):02} {rng.randint(0, 23):02}:{rng.randint(0, 59):02}:{rng.randint(0, 59):02}"
    source = f"{rng.choice(words)}.{rng.choice(words)}"
    return rng.choice(
        (
            f"{stamp},{rng.randint(0, 999):03} {rng.choice(('INFO', 'WARNING', 'DEBUG', 'ERROR'))} [{source}] "
            f"{' '.join(rng.choices(words, k=rng.randint(4, 11)))} in {rng.randint(1, 9000)} ms",
            f'10.0.{rng.randint(0, 255)}.{rng.randint(0, 255)} - - [{stamp}] "GET /{rng.choice(words)}/'
            f'{rng.randint(1, 9999)} HTTP/1.1" {rng.choice((200, 304, 404, 500))} {rng.randint(90, 90_000)}',
            f"{stamp}Z {source}[{rng.randint(100, 40_000)}]: request_id={rng.getrandbits(64):016x} "
            f"status={rng.choice(words)} retries={rng.randint(0, 5)}",
        )
    )


def crash(rng: random.Random) -> str:
    """A real traceback of the standard library, from a call that must fail."""
    import ast
    import configparser
    import decimal
    import email.policy
    import ipaddress
    import statistics as stats
    import xml.etree.ElementTree as tree

    calls: tuple[Callable[[], object], ...] = (
        lambda: json.loads('{"a": [1, 2,, 3]}'),
        lambda: ast.parse("def broken(:\n    pass"),
        lambda: configparser.ConfigParser().read_string("no section = 1"),
        lambda: decimal.Decimal("1.2.3"),
        lambda: ipaddress.ip_network("10.0.0.1/8"),
        lambda: stats.mean([]),
        lambda: tree.fromstring("<a><b></a>"),
        lambda: Path("/nonexistent/settings.toml").read_text(),
        lambda: __import__("importlib").import_module("perdure_no_such_module.sub"),
        lambda: email.policy.default.header_factory("To", 3),
        lambda: re.compile("(unclosed"),
        lambda: base64.b64decode("abc", validate=True),
    )
    try:
        rng.choice(calls)()
    except Exception as error:  # the point is its text
        return "".join(traceback.format_exception(error))
    return ""


def samples() -> dict[str, list[str]]:
    rng = random.Random(20_251_121)
    classes: dict[str, list[str]] = {}
    for name, text in (*sourced(rng), *generated(rng)):
        if len(text) >= 150:
            classes.setdefault(name, []).append(text)
    return classes


# --- real tokenizers ------------------------------------------------------------------------------------------------


def tokenizers(files: list[str], tiktoken_cache: str | None) -> Iterator[tuple[str, Count | None]]:
    """Name and counter of each tokenizer; None where it is not at hand. Never reaches for the network."""
    cache = (
        tiktoken_cache or os.environ.get("TIKTOKEN_CACHE_DIR") or os.path.join(tempfile.gettempdir(), "data-gym-cache")
    )
    for name, file in TIKTOKEN_FILES.items():
        yield name, _tiktoken(name, cache) if Path(cache, file).is_file() else None
    yield "tekken", _tekken()
    for file in files:
        yield Path(file).stem, _huggingface(file)


def _tiktoken(name: str, cache: str) -> Count | None:
    os.environ["TIKTOKEN_CACHE_DIR"] = cache
    try:
        import tiktoken
    except ImportError:
        return None
    encoding = tiktoken.get_encoding(name)
    return lambda text: len(encoding.encode_ordinary(text))


def _tekken() -> Count | None:
    try:
        import mistral_common
        from mistral_common.tokens.tokenizers.tekken import Tekkenizer
    except ImportError:
        return None
    found = sorted(Path(str(mistral_common.__file__)).parent.glob("data/tekken_*.json"))
    if not found:
        return None
    tekken = Tekkenizer.from_file(str(found[-1]))
    return lambda text: len(tekken.encode(text, bos=False, eos=False))


def _huggingface(file: str) -> Count | None:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return None
    tokenizer = Tokenizer.from_file(file)
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


# --- tables ---------------------------------------------------------------------------------------------------------


def table(rows: list[list[str]], markdown: bool) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    gap, edge = (" | ", ("| ", " |")) if markdown else ("  ", ("", ""))
    aligned = [[row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in rows]
    lines = [edge[0] + gap.join(row) + edge[1] for row in aligned]
    if markdown:
        lines.insert(1, "|" + "|".join("---" if n == 0 else "---:" for n in range(len(widths))) + "|")
    return "\n".join(lines)


def megabytes_per_second(count: Count, texts: list[str]) -> float:
    size, best = sum(len(text.encode()) for text in texts), float("inf")
    for _ in range(7):
        start = time.perf_counter()
        for text in texts:
            count(text)
        best = min(best, time.perf_counter() - start)
    return size / best / 1e6


def speed(classes: dict[str, list[str]], markdown: bool) -> str:
    rows = [["MB/s", "docs", "KB", "live, each doc", "live, 1 MB text", "base, each doc"]]
    for name, texts in classes.items():
        size = sum(len(text.encode()) for text in texts)
        long = ["\n".join(texts * (1_000_000 // size + 1))]
        speeds = [(live_tokens, texts), (live_tokens, long), (base_tokens, texts)]
        rows.append(
            [name, str(len(texts)), f"{size / 1e3:.0f}", *(f"{megabytes_per_second(f, t):,.0f}" for f, t in speeds)]
        )
    return table(rows, markdown)


def errors(classes: dict[str, list[str]], counters: dict[str, Count], markdown: bool) -> str:
    """Mean absolute error in percent, "live / chars/4", by class; the last row is the mean of the classes.
    The last column is the signed error of live: the median over the tokenizers of each one's median document."""
    rows = [["live / chars/4, %", *counters, "live, signed"]]
    means: list[list[tuple[float, float]]] = []
    for name, texts in classes.items():
        line: list[tuple[float, float]] = []
        signed: list[float] = []
        for count in counters.values():
            true = [count(text) for text in texts]
            live = [100 * (live_tokens(text) / t - 1) for text, t in zip(texts, true, strict=True)]
            base = [100 * (base_tokens(text) / t - 1) for text, t in zip(texts, true, strict=True)]
            line.append((statistics.fmean(map(abs, live)), statistics.fmean(map(abs, base))))
            signed.append(statistics.median(live))
        means.append(line)
        rows.append([name, *(f"{live:.0f} / {base:.0f}" for live, base in line), f"{statistics.median(signed):+.0f}"])
    macro = [[statistics.fmean(kind) for kind in zip(*column, strict=True)] for column in zip(*means, strict=True)]
    rows.append(["MACRO", *(f"{live:.1f} / {base:.1f}" for live, base in macro), ""])
    return table(rows, markdown)


def versions() -> str:
    found = [f"Python {sys.version.split()[0]}"]
    for package in ("tiktoken", "tokenizers", "mistral-common"):
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", action="append", default=[], metavar="FILE", help="a tokenizer.json")
    parser.add_argument("--tiktoken-cache", metavar="DIR", help="where tiktoken's files lie")
    parser.add_argument("--markdown", action="store_true", help="tables for docs/how/tokens.md")
    options = parser.parse_args()
    classes, counters = samples(), dict[str, Count]()
    print(versions(), end="\n\n")
    for name, count in tokenizers(options.tokenizer, options.tiktoken_cache):
        if count is None:
            print(f"tokenizer {name}: not available")
        else:
            counters[name] = count
    print("\nSpeed\n\n" + speed(classes, options.markdown))
    if counters:
        print("\nMean absolute error\n\n" + errors(classes, counters, options.markdown))


if __name__ == "__main__":
    main()
