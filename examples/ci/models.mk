# Targets for a Makefile: `include models.mk`. MODELS is a folder, MODEL the one that golden files and a baseline guard.
MODELS ?= models
MODEL ?= $(MODELS)/digits.onnx
GOLDEN ?= $(MODELS)/golden
BASELINE ?= $(MODELS)/baseline.json

.PHONY: models-check models-record models-test models-baseline models-bench

models-check:            ## every model is sound
	onnxtool check $(MODELS) --junit check.xml

models-record:           ## keep what the model gives now
	onnxtool compare $(MODEL) --record $(GOLDEN)

models-test:             ## the model still gives it
	onnxtool compare $(MODEL) --golden $(GOLDEN) --junit compare.xml

models-baseline:         ## keep how fast it is on this machine
	onnxtool bench $(MODEL) --threads 1 --json $(BASELINE)

models-bench:            ## it has not become slower
	onnxtool bench $(MODEL) --threads 1 --baseline $(BASELINE) --max-regression 20%
