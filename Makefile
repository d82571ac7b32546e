# Everything here is `python3 dev.py ...`, which sets itself up: see the README.

.PHONY: check test flights docs

check test:
	python3 dev.py test

flights:
	python3 dev.py flights

docs:
	python3 dev.py docs
