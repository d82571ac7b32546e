"""Tests of the cores of the Multi-Paxos engine, without a network."""
