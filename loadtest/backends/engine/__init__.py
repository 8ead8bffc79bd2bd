"""The reference engine: a small PyTorch server with colocated, chunked and disaggregated scheduling on one model.

shapes.py       which model: a named shape, or the config.json of a Hugging Face folder
settings.py     a `torch:` deployment, resolved
weights.py      safetensors or seeded random numbers into the model's tensors
model.py        Llama, Qwen2, Qwen3: one flat batch of prompt pieces and decodes
attention.py    attention over the paged KV cache
kvcache.py      KV memory and the blocks of each request
sampler.py      greedy and seeded sampling, the same in every arrangement
runner.py       one iteration: what was scheduled, as tensors, through the model
tokenizer.py    text in, text out
scheduler.py    the shared policies and `Instance`, on measured instead of modelled time
messages.py     what server and workers tell each other
channel.py      those messages over a socket
worker.py       a process that computes: both phases, prefill only, or decode only
link.py         KV from prefill to decode memory: shared memory or TCP, and an emulated slower wire
pusher.py       the prefill worker's side of a transfer
crew.py         the worker processes: start, watch, restart
coordinator.py  the engine behind the OpenAI face
handoff.py      the same for disaggregated serving: reserve, push, land, release

Only `weights`, `model`, `attention`, `kvcache`, `sampler`, `runner`, `link`, `pusher` and `worker` import torch, and
they run in worker processes; the process that talks HTTP never does.
"""
