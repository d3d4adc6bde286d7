from tests.facade.kit import apart, api

__all__ = ["apart", "api"]
